//! The client for the API server, tuned for many agents that start in the same second.

use std::path::Path;
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

/// The user agent, as the API server's audit log shows it.
const AGENT_NAME: &str = concat!("jobset-agent/", env!("CARGO_PKG_VERSION"));
/// The file of a Pod's ServiceAccount token.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Time limit to set up a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// TCP keepalive: the idle time before the first keepalive, the interval between two, and how many may go unanswered before
/// the connection counts as dead. Half a minute in all.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);

/// A client for the cluster of the Pod; outside a Pod, for the cluster of `KUBECONFIG`.
///
/// In a Pod, `KUBECONFIG` is ignored: the image of a worker may set it, and then a supervisor has it in its environment. That
/// kubeconfig may name another cluster than the one of the JobSet.
pub async fn connect() -> Result<Client, Error> {
    let is_set = |variable| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    let in_pod = is_set("KUBERNETES_SERVICE_HOST") && Path::new(TOKEN_PATH).exists();
    let config = if is_set("KUBECONFIG") && !in_pod {
        Config::from_kubeconfig(&KubeConfigOptions::default()).await.map_err(Error::Kubeconfig)?
    } else {
        Config::incluster().map_err(Error::ServiceAccount)?
    };
    client(config)
}

/// The layers of kube's own client, without its retries, which begin after 5 ms, and with TCP_NODELAY and TCP keepalive.
fn client(mut config: Config) -> Result<Client, Error> {
    // kube's own token file is not used: it keeps a newline at the end of the file, and it keeps a token that the API server
    // rejects for up to a minute.
    let token = config.auth_info.token_file.take_if(|_| config.auth_info.token.is_none());
    let token = token.map(|path| TokenFile::open(path.into())).transpose()?;
    let authorize = token.map(|token| {
        MapRequestLayer::new(move |mut request: Request<Body>| {
            request.headers_mut().insert(AUTHORIZATION, token.header());
            request
        })
    });
    config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT_NAME)));
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    // Without TCP_NODELAY, the first request of a connection waits 40 ms for the acknowledgement of the TLS handshake.
    tcp.set_nodelay(true);
    let (idle, interval, retries) = KEEPALIVE;
    tcp.set_keepalive(Some(idle));
    tcp.set_keepalive_interval(Some(interval));
    tcp.set_keepalive_retries(Some(retries));
    let http = HttpClient::builder(TokioExecutor::new())
        .build::<_, Body>(config.rustls_https_connector_with_connector(tcp).map_err(Error::Client)?);
    let http = http.map_response(|response| match retry_after_status(&response) {
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

/// A Status with the wait of the header `Retry-After`, for an error response that is not a Status itself. kube reads the wait
/// from a Status alone. The API server answers without a Status when API Priority and Fairness or its shutdown rejects a
/// request, which thousands of agents may meet at once.
fn retry_after_status<B>(response: &Response<B>) -> Option<Vec<u8>> {
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
    use crate::args::Names;
    use crate::decide::Input;
    use crate::report::{Extras, report};

    /// The input after a report that gets this response.
    async fn input_after_response(head: &str, body: &str) -> Input {
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
        let names = Names { namespace: "ml".to_owned(), pod: "train-w-0-0".to_owned(), jobset: "train".to_owned() };
        report(&client(Config::new(uri)).unwrap(), &names, 1, &Extras::default()).await
    }

    #[rstest]
    #[case::in_the_header_alone(
        "429 Too Many Requests\r\nContent-Type: text/plain\r\nRetry-After: 7",
        "later",
        Some(7)
    )]
    #[case::in_a_status(
        "429 Too Many Requests\r\nContent-Type: application/json",
        r#"{"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 7}}"#,
        Some(7)
    )]
    #[case::absent("429 Too Many Requests", "later", None)]
    #[case::as_a_date("503 Service Unavailable\r\nRetry-After: Wed, 21 Oct 2026 07:28:00 GMT", "later", None)]
    #[tokio::test]
    async fn report_rejected_carries_the_retry_after(
        #[case] head: &str,
        #[case] body: &str,
        #[case] seconds: Option<u64>,
    ) {
        let retry_after = seconds.map(Duration::from_secs);
        assert_eq!(input_after_response(head, body).await, Input::ReportFailed { epoch: 1, retry_after });
    }

    #[tokio::test]
    async fn success_with_retry_after_is_left_unchanged() {
        let head = "200 OK\r\nContent-Type: application/json\r\nRetry-After: 7";
        assert_eq!(input_after_response(head, "{}").await, Input::Reported { epoch: 1 });
    }
}
