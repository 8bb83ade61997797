//! Who may read `/metrics`: whoever the API server knows by a bearer token, and allows to get that path. Over TLS, with a
//! certificate that each process issues itself, as the Go JobSet's manager does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use jobset_certs::material::{Material, with_new_serving};
use jobset_certs::{Lifetimes, Names, Resolver, issue};
use jobset_program::lock;
use jobset_program::log_limit;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use rustls::ServerConfig;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::warn;

/// What is asked for on behalf of every caller: answers are remembered by token alone.
const PATH: &str = "/metrics";
/// How long the API server's yes stands, and its no.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How long a caller waits for the API server.
const LIMIT: Duration = Duration::from_secs(5);
/// Answers that are remembered. Of strangers', those that are oldest are forgotten first.
const REMEMBERED: usize = 64;
/// How many strangers' tokens the API server is asked about at once: a flood of them must not reach it. No more of them wait
/// than the port has connections, so that a scraper that is new here also gets its turn, within [`LIMIT`] at 40 ms for each.
const STRANGERS: usize = 4;
/// Lifetime of the certificate: longer than that of any process.
const LIFETIME: Duration = Duration::from_hours(10 * 365 * 24);

/// What became of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// The API server does not know the token.
    Unknown,
    Forbidden(String),
}

/// Asks the API server about callers, and remembers its answers.
#[derive(Clone)]
struct Scrapers(Arc<Asked>);

struct Asked {
    client: Client,
    answers: Mutex<Answers>,
    strangers: Semaphore,
    /// Those who were allowed before do not wait for strangers.
    known: Semaphore,
}

/// Answers of the API server by token. At most [`REMEMBERED`].
#[derive(Default)]
struct Answers(HashMap<String, (Instant, Verdict)>);

/// What is remembered of a caller.
#[derive(Debug, PartialEq, Eq)]
enum Memory {
    Known(Verdict),
    /// The caller was allowed, some time ago.
    WasAllowed,
    Nothing,
}

/// The same routes for those who are allowed to get [`PATH`].
pub fn authorized(routes: Router, client: Client) -> Router {
    routes.route_layer(middleware::from_fn_with_state(Scrapers::new(client), guard))
}

/// TLS with a certificate of this process's own.
pub fn tls(service: &str, namespace: &str) -> anyhow::Result<Arc<ServerConfig>> {
    let (now, lifetimes) = (Timestamp::now(), Lifetimes::new(LIFETIME * 2, LIFETIME)?);
    let names = Names::of_service(service, namespace)?;
    let issued = with_new_serving(&issue::authority(now, &lifetimes)?, &names, now, &lifetimes)?;
    let serving = Material::read(&issued).serving;
    let serving = serving.map_err(|defect| anyhow::anyhow!("the certificate of /metrics cannot be used: {defect}"))?;
    let resolver = Resolver::default();
    resolver.serve(serving.certified);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.context("cannot set up TLS")?.with_no_client_auth().with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

async fn guard(State(scrapers): State<Scrapers>, request: Request, next: Next) -> Response {
    let Some(token) = bearer(request.headers()) else {
        let text = "a bearer token is missing: see \"Metrics\" in the documentation\n";
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response();
    };
    match scrapers.verdict(token).await {
        Ok(Verdict::Allowed) => next.run(request).await,
        Ok(Verdict::Unknown) => (StatusCode::UNAUTHORIZED, "the API server does not know this token\n").into_response(),
        Ok(Verdict::Forbidden(user)) => {
            let text = format!("{user} must not get {PATH}: bind the ClusterRole jobset-metrics-reader\n");
            (StatusCode::FORBIDDEN, text).into_response()
        }
        Err(error) => {
            if let Some(suppressed) = log_limit::permit("scrapers") {
                warn!(error = format!("{error:#}"), suppressed, "cannot ask the API server who reads /metrics");
            }
            (StatusCode::SERVICE_UNAVAILABLE, "the API server cannot be asked about this token\n").into_response()
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then(|| token.trim())
}

impl Answers {
    fn of(&self, token: &str, now: Instant) -> Memory {
        let Some((at, verdict)) = self.0.get(token) else { return Memory::Nothing };
        let was_allowed = *verdict == Verdict::Allowed;
        if now.saturating_duration_since(*at) < if was_allowed { ALLOWED_FOR } else { REFUSED_FOR } {
            return Memory::Known(verdict.clone());
        }
        if was_allowed { Memory::WasAllowed } else { Memory::Nothing }
    }

    fn remember(&mut self, token: &str, verdict: Verdict, now: Instant) {
        self.0.insert(token.to_owned(), (now, verdict));
        if self.0.len() > REMEMBERED {
            let oldest = self.0.iter().min_by_key(|(_, (at, verdict))| (*verdict == Verdict::Allowed, *at));
            if let Some(token) = oldest.map(|(token, _)| token.clone()) {
                self.0.remove(&token);
            }
        }
    }
}

impl Scrapers {
    fn new(client: Client) -> Self {
        let (strangers, known) = (Semaphore::new(STRANGERS), Semaphore::new(STRANGERS));
        Self(Arc::new(Asked { client, answers: Mutex::default(), strangers, known }))
    }

    async fn verdict(&self, token: &str) -> anyhow::Result<Verdict> {
        let memory = self.lock().of(token, Instant::now());
        let lane = match memory {
            Memory::Known(verdict) => return Ok(verdict),
            Memory::WasAllowed => &self.0.known,
            Memory::Nothing => &self.0.strangers,
        };
        let asked = async {
            let _turn = lane.acquire().await?;
            self.ask(token).await
        };
        let verdict = timeout(LIMIT, asked).await.context("no answer in time")??;
        self.lock().remember(token, verdict.clone(), Instant::now());
        Ok(verdict)
    }

    async fn ask(&self, token: &str) -> anyhow::Result<Verdict> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviewed = Api::all(self.0.client.clone()).create(&PostParams::default(), &review).await;
        let status = reviewed.context("cannot create a TokenReview")?.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Verdict::Unknown);
        };
        let UserInfo { extra, groups, uid, username } = user;
        let attributes = NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            extra,
            groups,
            uid,
            user: username.clone(),
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviewed = Api::all(self.0.client.clone()).create(&PostParams::default(), &review).await;
        let allowed = reviewed.context("cannot create a SubjectAccessReview")?.status.is_some_and(|it| it.allowed);
        Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden(username.unwrap_or_default()) })
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        lock(&self.0.answers)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use futures::StreamExt as _;
    use futures::stream::FuturesUnordered;
    use kube::Config;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn answers_are_forgotten_in_time() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        answers.remember("prometheus", Verdict::Allowed, now);
        answers.remember("stranger", Verdict::Unknown, now);
        let at = |token, after| answers.of(token, now + after);
        let just = |it: Duration| it.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!(at("prometheus", just(ALLOWED_FOR)), Memory::Known(Verdict::Allowed));
        assert_eq!(at("prometheus", ALLOWED_FOR), Memory::WasAllowed);
        assert_eq!(at("stranger", just(REFUSED_FOR)), Memory::Known(Verdict::Unknown));
        assert_eq!(at("stranger", REFUSED_FOR), Memory::Nothing);
        assert_eq!(at("other", Duration::ZERO), Memory::Nothing);
    }

    #[test]
    fn unknown_callers_evict_no_allowed_caller() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        answers.remember("prometheus", Verdict::Allowed, now);
        for number in 0..1000 {
            answers.remember(&format!("stranger-{number}"), Verdict::Unknown, now + Duration::from_millis(number));
            assert!(answers.0.len() <= REMEMBERED, "{}", answers.0.len());
        }
        assert_eq!(answers.of("prometheus", now), Memory::Known(Verdict::Allowed));
        assert_eq!(answers.of("stranger-999", now), Memory::Known(Verdict::Unknown));
        assert_eq!(answers.of("stranger-0", now), Memory::Nothing);
    }

    /// An address where nobody answers, and who asks there.
    async fn silent() -> (Scrapers, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::try_from(Config::new(address.parse().unwrap())).unwrap();
        (Scrapers::new(client), listener)
    }

    #[tokio::test]
    async fn wait_for_silent_api_server_ends_at_limit() {
        let (scrapers, _listener) = silent().await;
        tokio::time::pause();
        let asked = timeout(LIMIT * 2, scrapers.verdict("token")).await;
        let error = asked.expect("it ends in time").unwrap_err();
        assert!(error.to_string().contains("no answer in time"), "{error:#}");
    }

    #[tokio::test]
    async fn known_callers_do_not_wait_for_unknown_ones() {
        let (scrapers, listener) = silent().await;
        let long_ago = Instant::now().checked_sub(ALLOWED_FOR).unwrap();
        scrapers.lock().remember("prometheus", Verdict::Allowed, long_ago);
        let tokens: Vec<_> = (0..10).map(|number| format!("stranger-{number}")).collect();
        let mut refused: FuturesUnordered<_> = tokens.iter().map(|token| scrapers.verdict(token)).collect();
        // As long as nobody has given up.
        let mut asked: Vec<TcpStream> = Vec::new();
        while asked.len() < STRANGERS {
            tokio::select! {
                biased;
                accepted = listener.accept() => asked.push(accepted.unwrap().0),
                given_up = refused.next() => panic!("{given_up:?}"),
            }
        }
        assert_eq!(scrapers.0.strangers.available_permits(), 0);
        tokio::select! {
            biased;
            accepted = listener.accept() => drop(accepted.unwrap()),
            given_up = refused.next() => panic!("it waited for a stranger: {given_up:?}"),
            answer = scrapers.verdict("prometheus") => panic!("nobody answers, and yet: {answer:?}"),
        }
    }

    #[test]
    fn a_token_is_read_from_a_bearer_header_alone() {
        let read = |text: &'static str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(text))]);
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(read("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(read("bearer  abc ").as_deref(), Some("abc"));
        for other in ["Basic abc", "Bearer", "Bearer ", "abc"] {
            assert_eq!(read(other), None, "{other}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn the_certificate_of_the_process_can_be_served() {
        assert!(tls("jobset-controller-metrics", "ns").is_ok());
    }
}
