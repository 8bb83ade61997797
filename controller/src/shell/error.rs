//! What can go wrong in the shell.

use std::net::SocketAddr;

use crate::plan::Note;
use crate::store::Key;

/// A request, or a listener, failed. The text names what was tried; the cause is the source.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error("cannot create Job {0}")]
    CreateJob(Key, #[source] kube::Error),
    #[error("Job {job} exists, {reason}: delete it, or rename the JobSet")]
    JobTaken { job: Key, reason: String },
    #[error("cannot delete Job {0}")]
    DeleteJob(Key, #[source] kube::Error),
    #[error("cannot change Job {0}")]
    ChangeJob(Key, #[source] kube::Error),
    #[error("cannot delete Pod {0}")]
    DeletePod(Key, #[source] kube::Error),
    #[error("cannot delete JobSet {0}")]
    DeleteJobSet(Key, #[source] kube::Error),
    #[error("cannot annotate JobSet {0}")]
    AnnotateJobSet(Key, #[source] kube::Error),
    #[error("cannot create PersistentVolumeClaim {0}")]
    CreateClaim(Key, #[source] kube::Error),
    #[error("cannot create Service {0}")]
    CreateService(Key, #[source] kube::Error),
    #[error("cannot write the status of JobSet {0}")]
    WriteStatus(Key, #[source] kube::Error),
    #[error("cannot listen on {0} for health checks: is the port taken? choose another with --health-listen")]
    Listen(SocketAddr, #[source] std::io::Error),
    #[error("the health server failed")]
    Serve(#[source] std::io::Error),
}

impl Error {
    /// Whether the request was made on an outdated view, which the next event corrects: ordinary weather.
    pub fn is_conflict(&self) -> bool {
        self.request().and_then(code) == Some(409)
    }

    /// What the user has to know, and do something about: the API server refused the object itself, or its name is taken.
    pub fn note(&self) -> Option<Note> {
        let warning = |reason, message| Some(Note { warning: true, reason, message });
        if let Self::JobTaken { .. } = self {
            return warning("JobNameTaken", self.to_string());
        }
        match self.request()? {
            kube::Error::Api(status) if [400, 403, 422].contains(&status.code) => {
                warning("Refused", format!("{self}: {}", status.message))
            }
            _ => None,
        }
    }

    fn request(&self) -> Option<&kube::Error> {
        match self {
            Self::CreateJob(_, source)
            | Self::DeleteJob(_, source)
            | Self::ChangeJob(_, source)
            | Self::DeletePod(_, source)
            | Self::DeleteJobSet(_, source)
            | Self::AnnotateJobSet(_, source)
            | Self::CreateClaim(_, source)
            | Self::CreateService(_, source)
            | Self::WriteStatus(_, source) => Some(source),
            Self::JobTaken { .. } | Self::Listen(..) | Self::Serve(_) => None,
        }
    }
}

/// The HTTP status that the API server answered with.
pub(super) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
