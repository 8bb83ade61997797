//! `/healthz` and `/readyz`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

use crate::shared::Shared;

/// How often the runtime of the connections shows that it turns.
const INTERVAL: Duration = Duration::from_secs(1);
/// Age at which that is too long ago.
const STUCK: Duration = Duration::from_secs(30);

/// When the runtime of the connections last turned.
#[derive(Debug)]
pub(crate) struct Pulse {
    begin: Instant,
    /// In milliseconds since the beginning.
    last: AtomicU64,
}

impl Pulse {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { begin: Instant::now(), last: AtomicU64::new(0) })
    }

    pub(crate) async fn beat(&self) {
        loop {
            self.last.store(self.now(), Ordering::Relaxed);
            tokio::time::sleep(INTERVAL).await;
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn is_alive(&self) -> bool {
        Duration::from_millis(self.now().saturating_sub(self.last.load(Ordering::Relaxed))) < STUCK
    }
}

/// The routes: `/healthz` is 200 while connections are served, `/readyz` while agents can also be told by their tokens and the
/// relay is not shutting down.
pub(crate) fn routes(pulse: Arc<Pulse>, shared: Arc<Shared>) -> Router {
    let healthz = move || {
        let alive = pulse.is_alive();
        std::future::ready(if alive {
            (StatusCode::OK, "ok\n")
        } else {
            (StatusCode::INTERNAL_SERVER_ERROR, "connections are not served\n")
        })
    };
    let readyz = move || {
        std::future::ready(if shared.stop.is_cancelled() {
            (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n")
        } else if shared.authenticator.is_ready() {
            (StatusCode::OK, "ok\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "the keys of ServiceAccount tokens have not been read\n")
        })
    };
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz))
}
