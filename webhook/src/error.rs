//! What can stop the admission service.

use std::net::SocketAddr;

/// Failure of an operation. The text leaves out the source, which [`std::error::Error::source`] gives.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments name something that no certificate can be issued for.
    #[error("cannot name the serving certificate")]
    Names(#[source] jobset_certs::Error),
    /// An address could not be listened on.
    #[error("cannot listen on {address} (choose another with {flag})")]
    Listen {
        /// Address asked for.
        address: SocketAddr,
        /// Flag that chooses it.
        flag: &'static str,
        /// Answer of the system.
        source: std::io::Error,
    },
    /// A port for probes or metrics could not be opened, or there is no thread for it.
    #[error(transparent)]
    Ports(anyhow::Error),
    /// TLS could not be set up.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    /// A metric could not be registered.
    #[error("a metric cannot be registered")]
    Metrics(#[source] prometheus::Error),
    /// There is no way to reach an API server.
    #[error("cannot find out how to reach the API server (neither in a cluster nor a kubeconfig)")]
    InferConfig(#[source] Box<kube::config::InferConfigError>),
    /// The API server's client could not be made.
    #[error("cannot make a client of the API server")]
    Client(#[source] kube::Error),
    /// The API server rejects the valid JobSet of --check-admission, or does not answer.
    #[error("the API server does not admit a valid JobSet")]
    ValidRejected(#[source] Box<kube::Error>),
    /// The API server does not call the mutating webhook.
    #[error("a JobSet gets no defaults: the API server calls no mutating webhook for the namespace {namespace}")]
    NoDefaults {
        /// Namespace of --check-admission.
        namespace: String,
    },
    /// The API server does not call the validating webhook.
    #[error("an invalid JobSet is admitted: the API server calls no validating webhook for the namespace {namespace}")]
    InvalidAdmitted {
        /// Namespace of --check-admission.
        namespace: String,
    },
    /// The invalid JobSet of --check-admission is rejected for another reason.
    #[error("no webhook denies an invalid JobSet; the API server rejects it for another reason")]
    NotDenied(#[source] Box<kube::Error>),
}
