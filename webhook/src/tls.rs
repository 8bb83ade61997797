//! TLS: which versions are spoken, and with what certificate.

use std::sync::Arc;

use clap::ValueEnum;
use jobset_program::server::HTTP2;
use rustls::server::ResolvesServerCert;
use rustls::{ServerConfig, SupportedProtocolVersion, version};

use crate::Error;

/// The oldest version of TLS that is spoken, by the names that Kubernetes' own components have for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MinVersion {
    /// TLS 1.2 and 1.3.
    #[value(name = "VersionTLS12")]
    Tls12,
    /// TLS 1.3 alone.
    #[value(name = "VersionTLS13")]
    Tls13,
}

impl MinVersion {
    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        static BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        match self {
            Self::Tls12 => &BOTH,
            Self::Tls13 => &BOTH[..1],
        }
    }
}

/// TLS of these versions with HTTP/2 and HTTP/1.1, and the certificates of the resolver.
pub fn config(resolver: Arc<dyn ResolvesServerCert>, min_version: MinVersion) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(min_version.versions())
        .map_err(Error::Tls)?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
