//! What is issued works in TLS handshakes, over a real connection, and can be replaced while connections are open.

// Test code outside of the functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;

use jiff::Timestamp;
use jobset_certs::material::{self, Material};
use jobset_certs::{Lifetimes, Names, Resolver, issue};
use rstest::rstest;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

fn issue(names: &Names) -> Material {
    let lifetimes = Lifetimes::default();
    let now = Timestamp::now();
    let authority = issue::authority(now, &lifetimes).unwrap();
    Material::read(&material::with_new_serving(&authority, &[], names, now, &lifetimes).unwrap())
}

fn service() -> Names {
    Names::of_service("hook", "ns").unwrap().with("127.0.0.1").unwrap()
}

/// A TLS server that sends back what it receives.
async fn echo(resolver: Arc<Resolver>, version: &'static SupportedProtocolVersion) -> (SocketAddr, JoinHandle<()>) {
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(connection).await else { return };
                let (mut read, mut write) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    (address, server)
}

async fn connect(
    address: SocketAddr,
    trusted: &[CertificateDer<'static>],
    name: &'static str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connection = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name).unwrap(), connection).await
}

async fn exchange(stream: &mut TlsStream<TcpStream>) -> std::io::Result<()> {
    stream.write_all(b"ping").await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"ping");
    Ok(())
}

#[rstest]
#[case::tls12(&rustls::version::TLS12)]
#[case::tls13(&rustls::version::TLS13)]
#[tokio::test]
async fn a_client_that_trusts_the_ca_accepts_every_name_and_no_other(
    #[case] version: &'static SupportedProtocolVersion,
) {
    let material = issue(&service());
    let resolver = Arc::new(Resolver::default());
    resolver.serve(material.serving.clone().unwrap().certified);
    let (address, server) = echo(resolver, version).await;
    for name in ["hook.ns.svc", "hook.ns.svc.cluster.local", "127.0.0.1"] {
        let mut stream = connect(address, &material.authorities(), name).await.unwrap();
        exchange(&mut stream).await.unwrap();
    }
    let other = connect(address, &material.authorities(), "hook.other.svc").await.unwrap_err();
    assert!(other.to_string().contains("not valid for name"), "{other}");
    let stranger = connect(address, &issue(&service()).authorities(), "hook.ns.svc").await.unwrap_err();
    assert!(
        stranger.to_string().contains("UnknownIssuer") || stranger.to_string().contains("BadSignature"),
        "{stranger}"
    );
    server.abort();
}

#[tokio::test]
async fn a_replaced_certificate_serves_new_connections_and_leaves_open_ones_alone() {
    let (old, new) = (issue(&service()), issue(&service()));
    let resolver = Arc::new(Resolver::default());
    let (address, server) = echo(Arc::clone(&resolver), &rustls::version::TLS13).await;
    assert!(connect(address, &old.authorities(), "hook.ns.svc").await.is_err(), "nothing is in service yet");
    resolver.serve(old.serving.clone().unwrap().certified);
    let mut open = connect(address, &old.authorities(), "hook.ns.svc").await.unwrap();
    exchange(&mut open).await.unwrap();
    resolver.serve(new.serving.clone().unwrap().certified);
    exchange(&mut open).await.unwrap();
    assert!(connect(address, &old.authorities(), "hook.ns.svc").await.is_err());
    let both = [old.authorities(), new.authorities()].concat();
    exchange(&mut connect(address, &both, "hook.ns.svc").await.unwrap()).await.unwrap();
    server.abort();
}
