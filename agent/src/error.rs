//! The errors that end the agent.

use std::path::PathBuf;

use thiserror::Error;

use crate::token::TokenError;

/// An error that ends the agent. A failed request to the API server is never one: the agent retries it.
#[derive(Debug, Error)]
pub enum Error {
    /// The kubeconfig cannot be read.
    #[error("cannot read the kubeconfig that the environment variable KUBECONFIG names")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    /// The Pod has no ServiceAccount token, or the kubelet's variables are missing.
    #[error("cannot read the Pod's ServiceAccount; mount its token (automountServiceAccountToken), or set KUBECONFIG")]
    ServiceAccount(#[source] kube::config::InClusterError),
    /// The token's file holds no usable token.
    #[error("cannot use the token in {}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why it is not usable.
        source: TokenError,
    },
    /// The client cannot be built, for example because a certificate is malformed.
    #[error("cannot build a client for the API server")]
    Client(#[source] kube::Error),
    /// The port of the startup probe is in use.
    #[error("cannot listen on port {port} for the startup probe; set BARRIER_PORT and the probe to a free port")]
    Listen {
        /// TCP port.
        port: u16,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file that shows the epoch to the worker cannot be written.
    #[error("cannot write the file that EPOCH_FILE names; mount a volume there that the agent's user may write to")]
    EpochFile(#[source] std::io::Error),
    /// The agent cannot adopt orphaned processes, so a process of the worker could survive into the next epoch.
    #[error("cannot become the parent of orphaned processes, which is needed to end every process of the worker")]
    Orphans(#[source] std::io::Error),
}
