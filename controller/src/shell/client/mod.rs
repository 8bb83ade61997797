//! The client of the API server: kube's, on a stack of layers of its own.
//!
//! From the outside in: a request that is refused with 429 is repeated ([`retry`]); takes its turn ([`limit`]); is sent
//! only while this replica leads, if it writes ([`fence`]); is counted ([`count`]); is given up after a minute.

mod count;
mod fence;
mod limit;
mod retry;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use prometheus::Registry;
use tokio::sync::watch;
use tower::filter::{AsyncFilterLayer, FilterLayer};
use tower::retry::RetryLayer;
use tower::timeout::TimeoutLayer;
use tower::util::BoxCloneService;
use tower::{BoxError, ServiceBuilder};

use super::error::Error;
use super::lease::Leadership;
use crate::engine::Urgency;
use count::CountLayer;
use limit::Limiter;

pub(super) use fence::NotLeading;

/// Longest time to set up a TCP connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Silence after which TCP asks whether the peer is still there, the time between two such questions, and how many go
/// unanswered before the connection counts as dead.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);
/// How long sent bytes may stay unacknowledged before the connection counts as dead: as long as silence may last.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
/// Longest time until a request is answered; a watch is answered when it begins. The API server itself gives up after a
/// minute.
const ANSWER: Duration = Duration::from_secs(65);

/// How many requests may be made.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests a second.
    pub qps: NonZeroU32,
    /// Requests at once after a pause.
    pub burst: NonZeroU32,
}

/// Clients that share one rate limit.
#[derive(Clone)]
pub struct Workers {
    /// For watches, events and urgent requests.
    pub urgent: Client,
    /// For bulk requests.
    pub bulk: Client,
}

/// Makes clients that are counted together.
pub struct Clients {
    config: Config,
    count: CountLayer,
}

impl Clients {
    /// Clients for the API server of this configuration.
    ///
    /// # Errors
    /// If the metric is registered already.
    pub fn new(config: Config, registry: &Registry) -> Result<Self, Error> {
        Ok(Self { config, count: CountLayer::register(registry).map_err(Error::Metrics)? })
    }

    /// Clients for the work. They write only while this replica leads: a request that waits for its turn, or to be repeated,
    /// when the leadership ends is not sent any more.
    ///
    /// # Errors
    /// If the configuration is not valid.
    pub fn workers(&self, limits: Limits, leadership: &watch::Receiver<Leadership>) -> Result<Workers, Error> {
        let limiter = Limiter::new(limits.qps, limits.burst);
        let client = |urgency: Urgency| {
            let (limiter, leadership) = (limiter.clone(), leadership.clone());
            let service = ServiceBuilder::new()
                .layer(RetryLayer::new(retry::WaitAsAsked::default()))
                .layer(AsyncFilterLayer::new(move |request: Request<Body>| limiter.clone().admit(request, urgency)))
                .layer(FilterLayer::new(move |request: Request<Body>| fence::pass(*leadership.borrow(), request)))
                .service(self.connected()?);
            Result::<_, Error>::Ok(Client::new(service, &self.config.default_namespace))
        };
        Ok(Workers { urgent: client(Urgency::Urgent)?, bulk: client(Urgency::Bulk)? })
    }

    /// A client for the election, with connections of its own: nothing else delays its requests.
    ///
    /// # Errors
    /// If the configuration is not valid.
    pub fn elector(&self) -> Result<Client, Error> {
        Ok(Client::new(self.connected()?, &self.config.default_namespace))
    }

    /// The stack of kube's own client without its retries, which begin after 5 ms and repeat more than was refused for
    /// lack of capacity, and without its lines of level ERROR for each answer above 499.
    fn connected(&self) -> Result<Connected, Error> {
        let config = &self.config;
        let tls = config.rustls_https_connector_with_connector(tcp()).map_err(Error::Client)?;
        let http = HttpClient::builder(TokioExecutor::new()).build::<_, Body>(tls);
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .layer(self.count.clone())
            .option_layer(config.auth_layer().map_err(Error::Client)?)
            .layer(config.extra_headers_layer().map_err(Error::Client)?)
            .layer(TimeoutLayer::new(ANSWER))
            .map_err(BoxError::from)
            .service(http);
        Ok(BoxCloneService::new(service))
    }
}

type Connected = BoxCloneService<Request<Body>, Response<Incoming>, BoxError>;

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT));
    // Without it the first request of a connection waits 40 ms for the acknowledgement of the TLS handshake's end.
    tcp.set_nodelay(true);
    let (idle, interval, retries) = KEEPALIVE;
    tcp.set_keepalive(Some(idle));
    tcp.set_keepalive_interval(Some(interval));
    tcp.set_keepalive_retries(Some(retries));
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    tcp
}
