//! What can go wrong: what, where, and what to do.

use std::path::PathBuf;

use crate::exit::Exit;

/// A command that could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be used.
    #[error(
        "cannot use the kubeconfig: {0}; see `kubectl config view`, or name another with --kubeconfig or --context"
    )]
    Kubeconfig(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// There is no such JobSet.
    #[error("there is no JobSet {name} in namespace {namespace}; `kubectl jobset status -A` lists all that there are")]
    NotFound {
        /// Name asked for.
        name: String,
        /// Namespace looked at.
        namespace: String,
    },
    /// The API server has no JobSets at all.
    #[error("the cluster has no kind JobSet ({group}): install the CustomResourceDefinition of JobSet", group = jobset_api::GROUP)]
    NoKind,
    /// A request was refused for want of rights.
    #[error("may not {what}: {message}; ask for the right to get, list and watch them")]
    Forbidden {
        /// What was asked for.
        what: String,
        /// Words of the API server.
        message: String,
    },
    /// A request was refused, since the API server does not know who asks.
    #[error(
        "cannot {what}: {message}; the login of the kubeconfig's context has expired or is wrong: log in again, and \
         see `kubectl auth whoami`"
    )]
    Unauthenticated {
        /// What was asked for.
        what: String,
        /// Words of the API server.
        message: String,
    },
    /// A request failed.
    #[error("cannot {what}: {}", chain(.source))]
    Request {
        /// What was asked for.
        what: String,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A manifest is named by its URL.
    #[error("URLs are not read: fetch it, as in `curl -L {0} | kubectl jobset validate -f -`")]
    Url(String),
    /// A folder holds no manifest.
    #[error("{} holds no file that ends in .yaml, .yml or .json", .0.display())]
    EmptyFolder(PathBuf),
    /// Something cannot be written.
    #[error("cannot write the output: {0}")]
    Write(#[source] std::io::Error),
    /// Ctrl-C, or SIGINT.
    #[error("interrupted")]
    Interrupted,
    /// A report cannot be put into words.
    #[error("cannot write the report as {format}: {message}")]
    Serialize {
        /// JSON or YAML.
        format: &'static str,
        /// Why.
        message: String,
    },
}

impl Error {
    /// The exit code that says so.
    pub fn exit(&self) -> Exit {
        match self {
            // Nobody reads any more.
            Self::Write(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Ok,
            Self::Interrupted => Exit::Interrupted,
            Self::Kubeconfig(_)
            | Self::Read { .. }
            | Self::Url(_)
            | Self::EmptyFolder(_)
            | Self::Write(_)
            | Self::Serialize { .. } => Exit::Usage,
            _ => Exit::Cluster,
        }
    }

    /// A request for `what` that failed, told apart by what a person does about it.
    pub fn request(what: impl Into<String>, error: kube::Error) -> Self {
        let what = what.into();
        match error {
            kube::Error::Api(status) if status.code == 401 => {
                Self::Unauthenticated { what, message: status.message.clone() }
            }
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden { what, message: status.message.clone() },
            source => Self::Request { what, source: Box::new(source) },
        }
    }
}

/// An error with its causes, each of which says more than the one before.
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
    fn a_refusal_says_what_to_do_about_it(#[case] code: u16, #[case] words: &str, #[case] not: &str) {
        let text = answered(code).to_string();
        assert!(text.contains(words) && !text.contains(not), "{text}");
        assert_eq!(answered(code).exit(), Exit::Cluster);
    }
}
