//! `/healthz` and `/readyz` on one port, `/metrics` ([`jobset_metrics`]) on another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::Error;

/// Whether the controller has seen everything once. A replica that stands by has, too.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<AtomicBool>);

impl Health {
    /// From now on the controller is ready.
    pub fn set_ready(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn readiness(&self) -> (StatusCode, &'static str) {
        if self.0.load(Ordering::Relaxed) {
            (StatusCode::OK, "ok\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "waiting for the first listings\n")
        }
    }

    /// What is served of it.
    pub fn routes(self) -> Router {
        Router::new()
            .route("/healthz", get(|| std::future::ready("ok\n")))
            .route("/readyz", get(move || std::future::ready(self.readiness())))
    }
}

/// Serves until `stop`. `flag` is the one that sets the address.
///
/// # Errors
/// If the address cannot be listened on.
pub async fn serve(
    address: SocketAddr,
    flag: &'static str,
    what: &'static str,
    routes: Router,
    stop: CancellationToken,
) -> Result<(), Error> {
    let taken = |source| Error::Listen { address, what, flag, source };
    let listener = TcpListener::bind(address).await.map_err(taken)?;
    info!(address = %listener.local_addr().map_err(taken)?, "serving {what}");
    axum::serve(listener, routes)
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
        .map_err(|source| Error::Serve(what, source))
}
