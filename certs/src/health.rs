//! `/healthz` and `/readyz` of a server with certificates.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::Readiness;

/// The routes: `/healthz` is 200 while the process runs, `/readyz` while API servers can call the admission service and it is
/// not shutting down; otherwise it is 503 with the reason.
pub fn routes(readiness: watch::Receiver<Readiness>, draining: CancellationToken) -> Router {
    let readyz = move || {
        let answer = if draining.is_cancelled() {
            (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n".to_owned())
        } else {
            match &*readiness.borrow() {
                Readiness::Ready => (StatusCode::OK, "ok\n".to_owned()),
                Readiness::ReadyBut(remark) => (StatusCode::OK, format!("ok, but {remark}\n")),
                Readiness::NotReady(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
            }
        };
        std::future::ready(answer)
    };
    Router::new().route("/healthz", get(async || "ok\n")).route("/readyz", get(readyz))
}
