//! The clients of the API server: kube's client on a stack of tower layers.
//!
//! A request passes these layers from the outside in. It is retried after an answer 429 ([`retry`]). It waits for the rate limit
//! ([`limit`]). A write is sent only while this replica leads ([`Leadership`]). It is counted ([`count`]), and it has one time
//! limit, body included ([`deadline`]).

mod count;
mod deadline;
mod limit;
mod retry;
#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::Context as _;
use http::{Request, Response};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jobset_engine::Urgency;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use prometheus::{IntCounterVec, Registry};
use tokio::sync::watch;
use tower::filter::{AsyncFilterLayer, FilterLayer};
use tower::retry::RetryLayer;
use tower::util::BoxCloneService;
use tower::{BoxError, ServiceBuilder, service_fn};

use super::lease::Leadership;
use crate::args::ClientArgs;
use deadline::TimedBody;
use limit::Limiter;
pub(super) use limit::watched;

/// Longest time to set up a TCP connection.
const CONNECT: Duration = Duration::from_secs(5);
/// TCP keepalive: the idle time before the first probe, the time between two probes, and the number of unanswered probes after
/// which the connection counts as dead.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);
/// How long sent bytes may stay unacknowledged before the connection counts as dead. Keepalive takes as long.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// The error of a configuration that no client can be built from.
const INVALID: &str = "the configuration of the API server's client is not valid";

/// Clients that share one rate limit.
#[derive(Clone)]
pub struct Workers {
    /// For watches and urgent requests.
    pub urgent: Client,
    /// For bulk requests and Events.
    pub bulk: Client,
}

/// Makes clients whose requests are counted together.
#[derive(Clone)]
pub struct Clients {
    config: Config,
    requests: IntCounterVec,
}

impl Clients {
    /// Clients for the API server of this configuration.
    pub fn new(config: Config, registry: &Registry) -> anyhow::Result<Self> {
        Ok(Self { config, requests: count::register(registry)? })
    }

    /// Clients for the work. They write only while this replica leads. A write that waits for the rate limit or for a retry when
    /// the leadership ends is not sent.
    pub fn workers(&self, limits: &ClientArgs, leadership: &watch::Receiver<Leadership>) -> anyhow::Result<Workers> {
        let limiter = Limiter::new(limits.kube_api_qps, limits.kube_api_burst);
        let client = |urgency: Urgency| {
            let (limiter, leadership) = (limiter.clone(), leadership.clone());
            let service = ServiceBuilder::new()
                .layer(RetryLayer::new(retry::RetryAfter::default()))
                .layer(AsyncFilterLayer::new(move |request: Request<Body>| limiter.clone().admit(request, urgency)))
                .layer(FilterLayer::new(move |request: Request<Body>| leadership.borrow().admit(request)))
                .service(self.connected().context(INVALID)?);
            anyhow::Ok(Client::new(service, &self.config.default_namespace))
        };
        Ok(Workers { urgent: client(Urgency::Urgent)?, bulk: client(Urgency::Bulk)? })
    }

    /// A client for the election, with connections of its own: nothing else delays its requests. Its tasks run in the runtime in
    /// which it is made.
    pub fn elector(&self) -> anyhow::Result<Client> {
        Ok(Client::new(self.connected().context(INVALID)?, &self.config.default_namespace))
    }

    /// The inner stack of kube's own client. Its other layers retry more answers than 429, and log each answer above 499 with
    /// level ERROR.
    fn connected(&self) -> kube::Result<Connected> {
        let (config, requests) = (&self.config, self.requests.clone());
        let tls = config.rustls_https_connector_with_connector(tcp())?;
        let http = HttpClient::builder(TokioExecutor::new()).build::<_, Body>(tls);
        let sent = ServiceBuilder::new()
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .service(service_fn(move |request| deadline::limited(http.clone(), request)));
        let counted = service_fn(move |request| count::counted(requests.clone(), sent.clone(), request));
        Ok(BoxCloneService::new(ServiceBuilder::new().layer(config.base_uri_layer()).service(counted)))
    }
}

type Connected = BoxCloneService<Request<Body>, Response<TimedBody>, BoxError>;

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
