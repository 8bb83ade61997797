//! What ends the agent, and what a failed request to the API server tells it.

use std::path::PathBuf;
use std::time::Duration;

use kube::core::Status;
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

/// Most characters of a cause that are written to the log.
const TEXT: usize = 300;

/// A request that the API server refused or that did not reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// HTTP status; 0 if there was no answer.
    pub code: u16,
    /// How long the API server asked to wait.
    pub retry_after: Option<Duration>,
    /// The cause, in one line.
    pub text: String,
}

impl Failure {
    /// A request that got no answer in this time.
    pub(crate) fn timeout(limit: Duration) -> Self {
        Self { code: 0, retry_after: None, text: format!("no answer within {} s", limit.as_secs()) }
    }
}

/// In one line of limited length: a proxy may answer with a page.
fn line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(TEXT).collect()
}

impl From<&Status> for Failure {
    fn from(status: &Status) -> Self {
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        Self {
            code: status.code,
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
            text: match status {
                // What is JSON and nothing else that is expected passes for a Status of which every field is missing.
                Status { code: 0, reason, message, .. } if reason.is_empty() && message.is_empty() => {
                    "an answer that cannot be read".to_owned()
                }
                _ => line(&format!("{} {}: {}", status.code, status.reason, status.message)),
            },
        }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        if let kube::Error::Api(status) = &error {
            return Self::from(&**status);
        }
        // Each level of the chain repeats the one below, so the innermost says it all.
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Self { code: 0, retry_after: None, text: cause.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_of_itself_is_named_all_the_same() {
        let failure = Failure::from(&Status::default());
        assert_eq!((failure.code, failure.text.as_str()), (0, "an answer that cannot be read"));
    }

    #[test]
    fn the_page_of_a_proxy_is_cut_to_a_line() {
        let page = Status { code: 502, message: format!("<html>\n{}", "ä".repeat(100_000)), ..Status::default() };
        let text = Failure::from(&page).text;
        assert!(text.starts_with("502 : <html> ä") && text.chars().count() <= TEXT && !text.contains('\n'), "{text}");
    }
}
