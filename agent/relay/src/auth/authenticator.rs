//! Reads the published keys, and asks the API server about tokens that they do not tell of.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use http::Request;
use jobset_program::lock;
use k8s_openapi::api::authentication::v1::TokenReview;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::review::{self, Memory};
use super::turns::{Places, Reviews};
use super::{AgentIdentity, KeySet, Rejection, Verdict, judge};

/// How often the keys are read.
const INTERVAL: Duration = Duration::from_mins(5);
/// Pause after they could not be read.
const RETRY: Duration = Duration::from_secs(5);
/// How often an unknown key has them read again.
const REFRESH_PAUSE: Duration = Duration::from_secs(10);
/// How long the API server may take for one answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

const DISCOVERY: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/openid/v1/jwks";

/// Tells who agents are.
pub struct Authenticator {
    client: Api<TokenReview>,
    keys: ArcSwapOption<KeySet>,
    /// When the keys were last asked for.
    asked: tokio::sync::Mutex<Option<Instant>>,
    strangers: Places,
    reviews: Reviews,
    memory: Mutex<Memory>,
    /// Whether the API server has reviewed a token.
    has_reviewed: AtomicBool,
}

impl Authenticator {
    /// Knows no keys yet.
    pub fn new(client: Client) -> Self {
        Self {
            client: Api::all(client),
            keys: ArcSwapOption::empty(),
            asked: tokio::sync::Mutex::new(None),
            strangers: Places::of_strangers(),
            reviews: Reviews::new(),
            memory: Mutex::default(),
            has_reviewed: AtomicBool::new(false),
        }
    }

    /// Whether agents can be told by keys, or by reviews.
    pub fn is_ready(&self) -> bool {
        self.keys.load().is_some() || self.has_reviewed.load(Ordering::Relaxed)
    }

    /// Reads the keys, now and every few minutes.
    pub async fn follow(&self) {
        loop {
            let pause = match self.read_keys().await {
                Ok(()) => INTERVAL,
                Err(error) => {
                    warn!(%error, "cannot read the keys of ServiceAccount tokens");
                    if !self.is_ready() {
                        self.probe().await;
                    }
                    RETRY
                }
            };
            sleep(pause).await;
        }
    }

    async fn read_keys(&self) -> anyhow::Result<()> {
        let mut asked = self.asked.lock().await;
        self.refresh(&mut asked).await
    }

    /// Whose token this is, which came from this address.
    ///
    /// # Errors
    /// It is not valid for relays, or that cannot be found out.
    pub async fn authenticate(&self, token: &str, address: IpAddr) -> Result<AgentIdentity, Rejection> {
        let mut verdict = judge(self.keys.load().as_deref(), token, now());
        if matches!(verdict, Verdict::Unknown { .. }) {
            if let Some(reviewed) = self.memory().recall(token, now()) {
                return reviewed;
            }
            self.strangers.hold(address, self.refresh_for_unknown_key()).await?;
            verdict = judge(self.keys.load().as_deref(), token, now());
        }
        match verdict {
            Verdict::Accepted(identity) => Ok(identity),
            Verdict::Rejected(rejection) => Err(rejection),
            Verdict::Unknown { expires } => self.reviews.review(address, self.review(token, expires)).await,
        }
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    async fn review(&self, token: &str, expires: i64) -> Result<AgentIdentity, Rejection> {
        let result = match self.ask(token).await {
            Ok(answer) => review::answer(answer.status.unwrap_or_default(), expires),
            Err(error) => {
                if let Some(suppressed) = jobset_program::log_limit::permit("token reviews") {
                    warn!(%error, suppressed, "cannot have a token reviewed");
                }
                return Err(Rejection::Unreviewed);
            }
        };
        self.memory().remember(token, &result, now());
        result
    }

    async fn ask(&self, token: &str) -> Result<TokenReview, kube::Error> {
        let answer = self.client.create(&PostParams::default(), &review::question(token)).await?;
        self.has_reviewed.store(true, Ordering::Relaxed);
        Ok(answer)
    }

    /// Finds out whether tokens can be reviewed, by one that is none.
    async fn probe(&self) {
        if let Ok(Err(error)) = timeout(ANSWER_TIME, self.ask("none")).await {
            warn!(%error, "cannot have tokens reviewed");
        }
    }

    /// Reads the keys again, unless that was tried a moment ago. One attempt serves all that wait.
    async fn refresh_for_unknown_key(&self) {
        let mut asked = self.asked.lock().await;
        if asked.is_none_or(|asked| asked.elapsed() >= REFRESH_PAUSE)
            && let Err(error) = self.refresh(&mut asked).await
            && let Some(suppressed) = jobset_program::log_limit::permit("keys")
        {
            warn!(%error, suppressed, "cannot read the keys of ServiceAccount tokens");
        }
    }

    async fn refresh(&self, asked: &mut Option<Instant>) -> anyhow::Result<()> {
        *asked = Some(Instant::now());
        let discovery = timeout(ANSWER_TIME, self.text(DISCOVERY)).await??;
        let keys = timeout(ANSWER_TIME, self.text(KEYS)).await??;
        let keys = KeySet::read(&discovery, &keys)?;
        if self.keys.load().as_ref().is_none_or(|known| !known.has_same_names(&keys)) {
            info!(issuer = keys.issuer(), keys = keys.len(), "read the keys of ServiceAccount tokens");
        }
        self.keys.store(Some(Arc::new(keys)));
        Ok(())
    }

    async fn text(&self, path: &str) -> anyhow::Result<String> {
        let request = Request::get(path).body(Vec::new())?;
        Ok(self.client.clone().into_client().request_text(request).await?)
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
