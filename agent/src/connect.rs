//! The client for the API server, made for many agents that start in the same second.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Request, Response};
use http_body_util::Either;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use serde_json::json;
use tower::util::MapRequestLayer;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

use crate::error::Error;
use crate::token::TokenFile;

/// What the API server's audit log calls an agent.
const NAME: &str = concat!("jobset-agent/", env!("CARGO_PKG_VERSION"));
/// Where a Pod finds the token of its ServiceAccount.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Longest time to set up a TCP connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Silence after which TCP asks whether the peer is still there, the time between two such questions, and how many go
/// unanswered before the connection counts as dead: half a minute in all.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);

/// A client for the Pod's own cluster, or outside a Pod for the one that `KUBECONFIG` names. The image of a worker may bring a
/// `KUBECONFIG` of its own, which a supervisor finds in its environment: that says nothing of where its JobSet is.
pub async fn connect() -> Result<Client, Error> {
    let is_set = |variable| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    let in_pod = is_set("KUBERNETES_SERVICE_HOST") && Path::new(TOKEN).exists();
    let config = if is_set("KUBECONFIG") && !in_pod {
        Config::from_kubeconfig(&KubeConfigOptions::default()).await.map_err(Error::Kubeconfig)?
    } else {
        Config::incluster().map_err(Error::ServiceAccount)?
    };
    client(config)
}

/// The stack of kube's own client without its retries, which begin after 5 ms, and with two settings of the socket.
fn client(mut config: Config) -> Result<Client, Error> {
    // Not kube's own reading of the file: that keeps a newline at its end, and a token that is refused for up to a minute.
    let token = config.auth_info.token_file.take_if(|_| config.auth_info.token.is_none());
    let token = token.map(PathBuf::from).map(|path| match TokenFile::open(&path) {
        Ok(token) => Ok(token),
        Err(source) => Err(Error::Token { path, source }),
    });
    let token = token.transpose()?;
    let authorize = token.map(|token| {
        MapRequestLayer::new(move |mut request: Request<Body>| {
            request.headers_mut().insert(AUTHORIZATION, token.header());
            request
        })
    });
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
    let http = HttpClient::builder(TokioExecutor::new())
        .build::<_, Body>(config.rustls_https_connector_with_connector(tcp).map_err(Error::Client)?);
    let http = http.map_response(|response| match asked_to_wait(&response) {
        Some(status) => response.map(|_| Either::Right(Body::from(status))),
        None => response.map(Either::Left),
    });
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(config.extra_headers_layer().map_err(Error::Client)?)
        .option_layer(config.auth_layer().map_err(Error::Client)?)
        .option_layer(authorize)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

/// A refusal that says in its header alone how long to wait, as a Status that says it where the client looks: the API server
/// refuses so whom its fair queues or its shutdown turn away, and these are the refusals that thousands of agents meet.
fn asked_to_wait<B>(response: &Response<B>) -> Option<Vec<u8>> {
    let code = response.status();
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let is_status = header(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json"));
    if is_status || !(code.is_client_error() || code.is_server_error()) {
        return None;
    }
    let seconds: u32 = header(RETRY_AFTER)?.parse().ok()?;
    let message = format!("try again after {seconds} s");
    let reason = code.canonical_reason().unwrap_or_default();
    let details = json!({"retryAfterSeconds": seconds});
    let status = json!({"status": "Failure", "code": code.as_u16(), "reason": reason, "message": message,
        "details": details});
    Some(status.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rstest::rstest;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::decide::Input;
    use crate::report::report;

    /// What becomes of a report that is answered so.
    async fn answered(head: &str, body: &str) -> Input {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let answer = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}}}") {
                assert!(stream.read_buf(&mut request).await.unwrap() > 0);
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        });
        report(&client(Config::new(uri)).unwrap(), "ml", "train-w-0-0", 1).await
    }

    #[rstest]
    #[case::by_its_fair_queues("429 Too Many Requests\r\nContent-Type: text/plain\r\nRetry-After: 7", "later", Some(7))]
    #[case::in_a_status(
        "429 Too Many Requests\r\nContent-Type: application/json",
        r#"{"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 7}}"#,
        Some(7)
    )]
    #[case::not_at_all("429 Too Many Requests", "later", None)]
    #[case::by_a_date("503 Service Unavailable\r\nRetry-After: Wed, 21 Oct 2026 07:28:00 GMT", "later", None)]
    #[tokio::test]
    async fn an_agent_hears_how_long_it_is_asked_to_wait(
        #[case] head: &str,
        #[case] body: &str,
        #[case] seconds: Option<u64>,
    ) {
        let retry_after = seconds.map(Duration::from_secs);
        assert_eq!(answered(head, body).await, Input::ReportFailed { epoch: 1, retry_after });
    }

    #[tokio::test]
    async fn what_is_no_failure_passes_as_it_is() {
        let head = "200 OK\r\nContent-Type: application/json\r\nRetry-After: 7";
        assert_eq!(answered(head, "{}").await, Input::Reported { epoch: 1 });
    }
}
