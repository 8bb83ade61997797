//! The connections: TLS, HTTP, limits, and a graceful end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use jobset_api::gates::Gates;
use rustls::ServerConfig;
use rustls::server::ResolvesServerCert;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::Error;
use crate::review::{self, Malformed, Review};

/// Path of the mutating webhook, as the Go JobSet registers it.
pub const MUTATE_PATH: &str = "/mutate-jobset-x-k8s-io-v1alpha2-jobset";
/// Path of the validating webhook, as the Go JobSet registers it.
pub const VALIDATE_PATH: &str = "/validate-jobset-x-k8s-io-v1alpha2-jobset";

/// Largest body: an object and its predecessor, each at most 3 MiB (the API server's own limit), and the rest.
const BODY_LIMIT: usize = 8 << 20;
/// How long a client may take for the TLS handshake, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The routes of the webhooks.
pub fn router(gates: Gates) -> Router {
    let validate = move |body: &[u8]| review::validate(body, gates);
    Router::new()
        .route(MUTATE_PATH, post(async |headers: HeaderMap, body| answer(&headers, body, review::mutate)))
        .route(VALIDATE_PATH, post(async move |headers: HeaderMap, body| answer(&headers, body, validate)))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
}

fn answer(
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
    review: impl Fn(&[u8]) -> Result<Review, Malformed>,
) -> Response {
    let refuse = |status: StatusCode, text: String| {
        warn!(status = status.as_u16(), reason = text, "cannot answer a request");
        (status, format!("{text}\n")).into_response()
    };
    let content_type = headers.get(header::CONTENT_TYPE).map_or("", |value| value.to_str().unwrap_or("not text"));
    if content_type.split(';').next().is_none_or(|it| !it.trim().eq_ignore_ascii_case("application/json")) {
        let text = format!("Content-Type must be application/json, not {content_type:?}");
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    }
    let body = match body {
        Ok(body) => body,
        Err(error) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            return refuse(error.status(), format!("the body must not be larger than {BODY_LIMIT} bytes"));
        }
        Err(error) => return refuse(error.status(), error.body_text()),
    };
    match review(&body) {
        Ok(review) => axum::Json(review).into_response(),
        Err(error) => refuse(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

/// TLS 1.2 and 1.3 with HTTP/2 and HTTP/1.1, and the certificates of the resolver.
///
/// # Errors
/// When rustls has no cipher suite for these versions.
pub fn tls(resolver: Arc<dyn ResolvesServerCert>) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(Error::Tls)?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Serves until `stop`, then lets requests in flight finish for at most `drain`.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    router: Router,
    stop: CancellationToken,
    drain: Duration,
) {
    let acceptor = TlsAcceptor::from(tls);
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((connection, peer)) => {
                // From here on, so that a handshake in progress is waited for as well.
                let watcher = graceful.watcher();
                tokio::spawn(converse(connection, peer, acceptor.clone(), router.clone(), watcher));
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if timeout(drain, graceful.shutdown()).await.is_err() {
        warn!("requests in flight did not finish in time");
    }
}

/// One connection, from the handshake to its end.
async fn converse(
    connection: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let stream = match timeout(PATIENCE, acceptor.accept(connection)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => return debug!(%peer, "TLS handshake took too long"),
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    builder.http2().timer(TokioTimer::new());
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).into_owned();
    if let Err(error) = watcher.watch(serving).await {
        debug!(%peer, error, "connection ended early");
    }
}
