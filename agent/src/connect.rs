//! The client for the API server, made for many agents that start in the same second.

use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use crate::error::Error;

/// What the API server's audit log calls an agent.
const NAME: &str = concat!("jobset-agent/", env!("CARGO_PKG_VERSION"));
/// Longest time to set up a TCP connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Silence after which TCP asks whether the peer is still there, the time between two such questions, and how many go
/// unanswered before the connection counts as dead: half a minute in all.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);

/// A client for the cluster that `KUBECONFIG` names, or else for the Pod's own.
pub async fn connect() -> Result<Client, Error> {
    let config = if std::env::var_os("KUBECONFIG").is_some() {
        Config::from_kubeconfig(&KubeConfigOptions::default()).await.map_err(Error::Kubeconfig)?
    } else {
        Config::incluster().map_err(Error::ServiceAccount)?
    };
    client(config).map_err(Error::Client)
}

/// The stack of kube's own client without its retries, which begin after 5 ms, and with two settings of the socket.
fn client(mut config: Config) -> Result<Client, kube::Error> {
    config.headers.push((USER_AGENT, HeaderValue::from_static(NAME)));
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT));
    // Without it the first request of a connection waits 40 ms for the acknowledgement of the TLS handshake's end.
    tcp.set_nodelay(true);
    let (idle, interval, retries) = KEEPALIVE;
    tcp.set_keepalive(Some(idle));
    tcp.set_keepalive_interval(Some(interval));
    tcp.set_keepalive_retries(Some(retries));
    let http =
        HttpClient::builder(TokioExecutor::new()).build::<_, Body>(config.rustls_https_connector_with_connector(tcp)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(config.extra_headers_layer()?)
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}
