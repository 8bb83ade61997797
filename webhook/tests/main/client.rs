//! A TLS and HTTP client such as the API server is.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use jobset_certs::material::{self, Material};
use jobset_certs::{Lifetimes, Names, issue};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Name that the client asks for.
pub(crate) const HOST: &str = "jobset-webhook-service.jobset-system.svc";
pub(crate) const JSON: &str = "application/json";

/// Requests over a connection of HTTP/2.
pub(crate) type Sender = http2::SendRequest<Full<Bytes>>;

pub(crate) fn certificates() -> Material {
    let (now, lifetimes) = (Timestamp::now(), Lifetimes::default());
    let names = Names::default().with(HOST).unwrap();
    let authority = issue::authority(now, &lifetimes).unwrap();
    Material::read(&material::with_new_serving(&authority, &names, now, &lifetimes).unwrap())
}

/// The CA of a Secret.
pub(crate) fn authority(material: &Material) -> Vec<CertificateDer<'static>> {
    material.authority.iter().map(|it| it.certificate.clone()).collect()
}

/// HTTP version, chosen by ALPN.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Http {
    One,
    Two,
}

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) trusted: Vec<CertificateDer<'static>>,
    pub(crate) tls: &'static SupportedProtocolVersion,
    pub(crate) http: Http,
}

/// An answer with its whole body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr, trusted: Vec<CertificateDer<'static>>) -> Self {
        Self { address, trusted, tls: &rustls::version::TLS13, http: Http::Two }
    }

    pub(crate) async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_over(TcpStream::connect(self.address).await?).await
    }

    /// TLS over a connection of the caller's.
    pub(crate) async fn connect_over(&self, connection: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.trusted.iter().cloned());
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[self.tls])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = match self.http {
            Http::One => vec![b"http/1.1".to_vec()],
            Http::Two => vec![b"h2".to_vec()],
        };
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(HOST).unwrap(), connection).await
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        let stream = self.connect().await.unwrap();
        match self.http {
            Http::One => {
                let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
                tokio::spawn(connection);
                collect(sender.send_request(request).await.unwrap()).await
            }
            Http::Two => {
                let (mut sender, _) = Box::pin(http2(stream)).await.unwrap();
                collect(sender.send_request(request).await.unwrap()).await
            }
        }
    }

    pub(crate) async fn post(&self, path: &str, content_type: &str, body: impl Into<Bytes>) -> Answer {
        self.send(request(Method::POST, path, content_type, body)).await
    }

    /// Posts a review and returns the `response` of the answer.
    pub(crate) async fn review(&self, path: &str, review: &Value) -> Value {
        let answer = self.post(path, JSON, review.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let review = answer.json();
        assert_eq!(
            (review["apiVersion"].as_str(), review["kind"].as_str()),
            (Some("admission.k8s.io/v1"), Some("AdmissionReview"))
        );
        review["response"].clone()
    }
}

pub(crate) fn request(method: Method, path: &str, content_type: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(format!("https://{HOST}{path}"))
        .header("host", HOST)
        .header("content-type", content_type)
        .body(Full::new(body.into()))
        .unwrap()
}

/// Speaks HTTP/2 over this stream.
pub(crate) async fn http2(stream: TlsStream<TcpStream>) -> hyper::Result<(Sender, JoinHandle<hyper::Result<()>>)> {
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    Ok((sender, tokio::spawn(connection)))
}

async fn collect(response: Response<hyper::body::Incoming>) -> Answer {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = response.into_body().collect().await.unwrap().to_bytes().to_vec();
    Answer { status, headers, body }
}
