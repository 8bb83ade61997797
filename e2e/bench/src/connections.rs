//! Connections to the API server: HTTP/2, each shared by some agents.
//!
//! An agent in a Pod has TLS connections of its own. Thousands of them in one process beside the API server would measure
//! TLS handshakes on both sides of the same cores, so agents share connections here. The API server takes up to 100
//! concurrent requests on each, and an agent has up to two (watch, report): 50 agents never wait for a free stream.
//!
//! The identity is an administrator's: exempt from priority and fairness, and without the cost of checking a token.

use std::sync::Arc;

use anyhow::{Context, Result};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Request;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use tokio::sync::Semaphore;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _, service_fn};

const AGENTS: usize = 50;
/// Ended watches of one connection that may still receive late frames; beyond the default of ten, the connection would
/// answer each of them.
const ENDED_STREAMS: usize = 1024;

#[derive(Clone)]
pub(crate) struct Connections(Vec<Client>);

impl Connections {
    /// Connections for `agents` agents. Each opens at its first request.
    pub(crate) fn new(config: &Config, agents: usize) -> Result<Self> {
        (0..agents.div_ceil(AGENTS)).map(|_| client(config)).collect::<Result<_>>().map(Self)
    }

    /// The same, with requests that wait for one of these seats and hold it until they are answered.
    pub(crate) fn with_seats(config: &Config, agents: usize, seats: &Arc<Semaphore>) -> Result<Self> {
        (0..agents.div_ceil(AGENTS)).map(|_| client_of(config, Some(seats))).collect::<Result<_>>().map(Self)
    }

    pub(crate) fn of(&self, agent: usize) -> Client {
        self.0[agent / AGENTS].clone()
    }
}

/// A client of one HTTP/2 connection, without retries.
pub(crate) fn client(config: &Config) -> Result<Client> {
    client_of(config, None)
}

fn client_of(config: &Config, seats: Option<&Arc<Semaphore>>) -> Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let tls = config.rustls_client_config().context("cannot use the cluster's certificates")?;
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http2().wrap_connector(tcp);
    let http = HttpClient::builder(TokioExecutor::new())
        .http2_only(true)
        .http2_max_concurrent_reset_streams(ENDED_STREAMS)
        .build::<_, Body>(https);
    let auth = config.auth_layer().context("cannot use the cluster's credentials")?;
    let service =
        ServiceBuilder::new().layer(config.base_uri_layer()).option_layer(auth).map_err(BoxError::from).service(http);
    let Some(seats) = seats.cloned() else { return Ok(Client::new(service, config.default_namespace.clone())) };
    let seated = seated(seats, service);
    Ok(Client::new(seated, config.default_namespace.clone()))
}

type Answer<S> =
    BoxFuture<'static, Result<<S as Service<Request<Body>>>::Response, <S as Service<Request<Body>>>::Error>>;

/// The same service, in which each request waits for a seat. A request that is dropped leaves its place in the queue; tower's limit
/// would keep a seat for the next request of the connection.
fn seated<S>(
    seats: Arc<Semaphore>,
    service: S,
) -> impl Service<Request<Body>, Response = S::Response, Error = S::Error, Future = Answer<S>> + Send
where
    S: Service<Request<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    service_fn(move |request: Request<Body>| {
        let (seats, service) = (Arc::clone(&seats), service.clone());
        async move {
            // Nobody closes the semaphore.
            let _seat = seats.acquire_owned().await;
            service.oneshot(request).await
        }
        .boxed()
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[tokio::test]
    async fn request_that_is_dropped_leaves_its_seat_to_others() {
        let seats = Arc::new(Semaphore::new(1));
        let echo = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(()));
        let mut service = seated(Arc::clone(&seats), echo);
        let taken = Arc::clone(&seats).acquire_owned().await.unwrap();
        let mut waits = service.call(Request::new(Body::empty()));
        assert!(futures::poll!(&mut waits).is_pending(), "there is no seat");
        drop((waits, taken));
        service.call(Request::new(Body::empty())).await.unwrap();
        assert_eq!(seats.available_permits(), 1);
    }
}
