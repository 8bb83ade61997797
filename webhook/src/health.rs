//! `/healthz` and `/readyz`, on a port of their own: a probe must not depend on the certificate that it asks about.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use jobset_certs::Readiness;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[derive(Clone)]
struct Health {
    readiness: watch::Receiver<Readiness>,
    draining: CancellationToken,
}

/// The routes: `/healthz` is 200 while the process runs, `/readyz` while the API server can call the service; otherwise
/// it is 503 with the reason.
pub fn router(readiness: watch::Receiver<Readiness>, draining: CancellationToken) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(Health { readiness, draining })
}

async fn readyz(State(health): State<Health>) -> (StatusCode, String) {
    if health.draining.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n".to_owned());
    }
    match &*health.readiness.borrow() {
        Readiness::Ready => (StatusCode::OK, "ok\n".to_owned()),
        Readiness::ReadyBut(remark) => (StatusCode::OK, format!("ok, but {remark}\n")),
        Readiness::NotReady(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}
