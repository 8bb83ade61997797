//! What can stop the admission service.

use std::net::SocketAddr;

/// Failure of an operation. The text leaves out the source, which [`std::error::Error::source`] gives.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments name something that no certificate can be issued for.
    #[error("cannot name the serving certificate")]
    Names(#[source] jobset_certs::Error),
    #[error("cannot listen on {address} (choose another with {flag})")]
    Listen { address: SocketAddr, flag: &'static str, source: std::io::Error },
    /// A port for probes or metrics could not be opened, or there is no thread for it.
    #[error(transparent)]
    Ports(anyhow::Error),
    /// With these, the API server would refuse every Pod with an injected agent.
    #[error("--agent-requests and --agent-limits do not fit together: {0}")]
    AgentResources(String),
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("a metric cannot be registered")]
    Metrics(#[source] prometheus::Error),
    #[error("cannot find out how to reach the API server (neither in a cluster nor a kubeconfig)")]
    InferConfig(#[source] Box<kube::config::InferConfigError>),
    #[error("cannot make a client of the API server")]
    Client(#[source] kube::Error),
    /// The API server rejects the valid JobSet of --check-admission, or does not answer.
    #[error("the API server does not admit a valid JobSet")]
    ValidRejected(#[source] Box<kube::Error>),
    #[error("a JobSet gets no defaults: the API server calls no mutating webhook for the namespace {namespace}")]
    NoDefaults { namespace: String },
    #[error("an invalid JobSet is admitted: the API server calls no validating webhook for the namespace {namespace}")]
    InvalidAdmitted { namespace: String },
    #[error("no webhook denies an invalid JobSet; the API server rejects it for another reason")]
    NotDenied(#[source] Box<kube::Error>),
}
