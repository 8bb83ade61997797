//! Who may read `/metrics`: whoever the API server knows by a bearer token, and allows to get that path. Over TLS, with a
//! certificate that each process issues itself, as the Go JobSet's manager does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
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
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use rustls::ServerConfig;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::warn;

/// How long the API server's yes stands, and its no.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How long a caller waits for the API server.
const LIMIT: Duration = Duration::from_secs(5);
/// Answers that are remembered. Of strangers', those that are oldest are forgotten first.
const REMEMBERED: usize = 64;
/// How many strangers' tokens the API server is asked about at once: a flood of them must not reach it.
const STRANGERS: usize = 2;
/// Lifetime of the certificate: longer than that of any process.
const LIFETIME: Duration = Duration::from_hours(10 * 365 * 24);

/// What became of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// The API server does not know the token.
    Unknown,
    /// It does, and this user may not.
    Forbidden(String),
}

/// Asks the API server about callers, and remembers its answers.
#[derive(Clone)]
struct Scrapers(Arc<Asked>);

struct Asked {
    client: Client,
    answers: Mutex<HashMap<String, (Instant, Verdict)>>,
    strangers: Semaphore,
    /// Those who were allowed before do not wait for strangers.
    known: Semaphore,
}

/// The same routes for those who are allowed to.
pub fn authorized(routes: Router, client: Client) -> Router {
    let asked = Asked {
        client,
        answers: Mutex::default(),
        strangers: Semaphore::new(STRANGERS),
        known: Semaphore::new(STRANGERS),
    };
    routes.layer(middleware::from_fn_with_state(Scrapers(Arc::new(asked)), guard))
}

/// TLS with a certificate of this process's own.
///
/// # Errors
/// If it cannot be issued.
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
    match scrapers.verdict(token, request.uri().path()).await {
        Ok(Verdict::Allowed) => next.run(request).await,
        Ok(Verdict::Unknown) => (StatusCode::UNAUTHORIZED, "the API server does not know this token\n").into_response(),
        Ok(Verdict::Forbidden(user)) => {
            let text = format!("{user} must not get /metrics: bind the ClusterRole jobset-metrics-reader\n");
            (StatusCode::FORBIDDEN, text).into_response()
        }
        Err(error) => {
            warn!(error = format!("{error:#}"), "cannot ask the API server who reads /metrics");
            (StatusCode::SERVICE_UNAVAILABLE, "the API server cannot be asked about this token\n").into_response()
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then(|| token.trim())
}

impl Scrapers {
    async fn verdict(&self, token: &str, path: &str) -> anyhow::Result<Verdict> {
        let remembered = self.lock().get(token).cloned();
        let was_allowed = remembered.as_ref().is_some_and(|(_, verdict)| *verdict == Verdict::Allowed);
        if let Some((at, verdict)) = remembered
            && at.elapsed() < if was_allowed { ALLOWED_FOR } else { REFUSED_FOR }
        {
            return Ok(verdict);
        }
        let lane = if was_allowed { &self.0.known } else { &self.0.strangers };
        let asked = async {
            let _turn = lane.acquire().await?;
            self.ask(token, path).await
        };
        let verdict = timeout(LIMIT, asked).await.context("no answer in time")??;
        self.remember(token, verdict.clone());
        Ok(verdict)
    }

    async fn ask(&self, token: &str, path: &str) -> anyhow::Result<Verdict> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviewed = Api::all(self.0.client.clone()).create(&PostParams::default(), &review).await;
        let status = reviewed.context("cannot create a TokenReview")?.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Verdict::Unknown);
        };
        let UserInfo { extra, groups, uid, username } = user;
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
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

    fn remember(&self, token: &str, verdict: Verdict) {
        let mut answers = self.lock();
        answers.insert(token.to_owned(), (Instant::now(), verdict));
        if answers.len() > REMEMBERED {
            let oldest = answers.iter().min_by_key(|(_, (at, verdict))| (*verdict == Verdict::Allowed, *at));
            if let Some(token) = oldest.map(|(token, _)| token.clone()) {
                answers.remove(&token);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Instant, Verdict)>> {
        self.0.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

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
