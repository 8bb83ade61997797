//! The errors that end the agent.

use std::path::PathBuf;

use thiserror::Error;

use crate::token::TokenError;

/// An error that ends the agent. A failed request to the API server is never one: the agent retries it.
#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot read the kubeconfig that the environment variable KUBECONFIG names")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    #[error("cannot read the Pod's ServiceAccount; mount its token (automountServiceAccountToken), or set KUBECONFIG")]
    ServiceAccount(#[source] kube::config::InClusterError),
    #[error("cannot use the token in {}", path.display())]
    Token { path: PathBuf, source: TokenError },
    /// For example because a certificate is malformed.
    #[error("cannot build a client for the API server")]
    Client(#[source] kube::Error),
    #[error("cannot listen on port {port} for the startup probe; set BARRIER_PORT and the probe to a free port")]
    Listen { port: u16, source: std::io::Error },
    #[error("cannot write the file that EPOCH_FILE names; mount a volume there that the agent's user may write to")]
    EpochFile(#[source] std::io::Error),
    /// A process of the worker could survive into the next epoch.
    #[error("cannot become the parent of orphaned processes, which is needed to end every process of the worker")]
    Orphans(#[source] std::io::Error),
}
