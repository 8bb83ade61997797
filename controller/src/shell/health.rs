//! `/healthz` and `/readyz`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;

use super::Error;

/// Whether the controller has seen everything once.
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
}

/// Serves until `stop` is done.
pub async fn serve(
    address: SocketAddr,
    health: Health,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen(address, source))?;
    let app = Router::new()
        .route("/healthz", get(|| std::future::ready("ok\n")))
        .route("/readyz", get(move || std::future::ready(health.readiness())));
    axum::serve(listener, app).with_graceful_shutdown(stop).await.map_err(Error::Serve)
}
