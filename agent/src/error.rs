//! The errors that end the agent.

use std::path::PathBuf;

use thiserror::Error;

use crate::token::TokenError;

/// Why the agent cannot run. Trouble with the API server is never among them: that is retried.
#[derive(Debug, Error)]
pub enum Error {
    /// The kubeconfig cannot be read.
    #[error("cannot read the kubeconfig that the environment variable KUBECONFIG names")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    /// The Pod has no ServiceAccount token, or the kubelet's variables are missing.
    #[error("cannot read the Pod's ServiceAccount; mount its token (automountServiceAccountToken), or set KUBECONFIG")]
    ServiceAccount(#[source] kube::config::InClusterError),
    /// The token's file holds none.
    #[error("cannot use the token in {}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: TokenError,
    },
    /// The client cannot be made, for example because a certificate is malformed.
    #[error("cannot make a client for the API server")]
    Client(#[source] kube::Error),
    /// The port of the startup probe is taken.
    #[error("cannot listen on port {port} for the startup probe; set BARRIER_PORT and the probe to a free port")]
    Listen {
        /// TCP port.
        port: u16,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The worker could not be told its epoch.
    #[error("cannot write the file that EPOCH_FILE names; mount a volume there that the agent's user may write to")]
    EpochFile(#[source] std::io::Error),
    /// Orphans of the worker would outlive it.
    #[error("cannot become the parent of orphaned processes, to end what the worker leaves behind")]
    Orphans(#[source] std::io::Error),
    /// Signals cannot be received.
    #[error("cannot receive signals")]
    Signal(#[source] std::io::Error),
}
