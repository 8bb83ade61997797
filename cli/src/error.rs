//! Errors of commands. Each text says what failed and what to do.

use std::path::PathBuf;

use crate::exit::Exit;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot use the kubeconfig: {0}; see `kubectl config view`, or name another with --kubeconfig or --context"
    )]
    Kubeconfig(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("there is no JobSet {name} in namespace {namespace}; `kubectl jobset status -A` lists all JobSets")]
    NotFound { name: String, namespace: String },
    /// The API server does not serve the kind JobSet.
    #[error("the cluster has no kind JobSet ({group}): install the CustomResourceDefinition of JobSet", group = jobset_api::GROUP)]
    NoKind,
    #[error("cannot {what}: {}", cause(.source))]
    Request {
        what: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The options of a command do not fit the JobSet.
    #[error("{0}")]
    Usage(String),
    #[error("URLs are not read: download the manifest, as in `curl -L {0} | kubectl jobset validate -f -`")]
    Url(String),
    #[error("{} contains no file that ends in .yaml, .yml or .json", .0.display())]
    EmptyFolder(PathBuf),
    /// The page's port cannot be used.
    #[error(
        "cannot listen on 127.0.0.1:{port}: {source}; choose another port with --port, or a free one with --port 0"
    )]
    Listen {
        port: u16,
        #[source]
        source: std::io::Error,
    },
    /// The system has no random numbers for the page's token.
    #[error("cannot make a token: {0}")]
    Random(getrandom::Error),
    /// Standard output cannot be written, or the process cannot be set up.
    #[error("cannot write the output: {0}")]
    Write(#[source] std::io::Error),
    /// Ctrl-C, or SIGINT.
    #[error("interrupted")]
    Interrupted,
    #[error("cannot write the report as {format}: {message}")]
    Serialize {
        /// JSON or YAML.
        format: &'static str,
        message: String,
    },
}

impl Error {
    pub fn exit(&self) -> Exit {
        match self {
            // The reader has closed the pipe, as `head` does. That is no failure.
            Self::Write(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Ok,
            Self::Interrupted => Exit::Interrupted,
            Self::Kubeconfig(_)
            | Self::Read { .. }
            | Self::Usage(_)
            | Self::Url(_)
            | Self::EmptyFolder(_)
            | Self::Listen { .. }
            | Self::Random(_)
            | Self::Write(_)
            | Self::Serialize { .. } => Exit::Usage,
            _ => Exit::Cluster,
        }
    }

    /// Whether another change of the object came first.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Request { source, .. } if matches!(&**source, kube::Error::Api(status) if status.code == 409))
    }

    /// Whether the API server has answered that what was asked for is not there, or not yet.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Request { source, .. } if matches!(&**source, kube::Error::Api(status) if [400, 404].contains(&status.code)))
    }

    pub fn request(what: impl Into<String>, source: kube::Error) -> Self {
        Self::Request { what: what.into(), source: Box::new(source) }
    }
}

/// Why a request failed, with advice if the API server could not authenticate it (401) or denied it (403).
fn cause(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 401 => format!(
            "{}; the login of the kubeconfig's context has expired or is wrong: log in again, and see `kubectl auth whoami`",
            status.message
        ),
        kube::Error::Api(status) if status.code == 403 && status.message.contains("pods/log") => {
            format!("{}; ask for the right to get pods/log", status.message)
        }
        // Admission answers in its own words.
        kube::Error::Api(status) if status.code == 403 && status.message.contains(" cannot patch resource ") => {
            format!("{}; ask for the right to patch JobSets", status.message)
        }
        kube::Error::Api(status) if status.code == 403 => {
            format!("{}; ask for the right to get, list and watch these objects", status.message)
        }
        error => chain(error),
    }
}

/// An error with its causes. A cause that the text already contains is left out.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use rstest::rstest;

    use super::*;

    fn answered(code: u16) -> Error {
        let status = Status::failure("no", "No").with_code(code);
        Error::request("list JobSets", kube::Error::Api(status.boxed()))
    }

    #[rstest]
    #[case::login(401, "log in again", "ask for the right")]
    #[case::right(403, "ask for the right to get, list and watch", "log in again")]
    fn denied_request_error_has_advice(#[case] code: u16, #[case] words: &str, #[case] not: &str) {
        let text = answered(code).to_string();
        assert!(text.contains(words) && !text.contains(not), "{text}");
        assert_eq!(answered(code).exit(), Exit::Cluster);
    }
}
