//! What can go wrong in the shell.

use std::net::SocketAddr;

use jobset_api::{GROUP, event};

use super::client::NotLeading;
use super::lease::{InvalidTerms, Lost};
use crate::engine::{Failure, Key, RequestError};
use crate::plan::Note;

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
    #[error("cannot read Job {0}")]
    ReadJob(Key, #[source] kube::Error),
    #[error("cannot change Job {0}")]
    ChangeJob(Key, #[source] kube::Error),
    #[error("Job {0} has not come to rest since it was suspended")]
    JobNotAtRest(Key),
    #[error("cannot read Pod {0}")]
    ReadPod(Key, #[source] kube::Error),
    #[error("cannot mark Pod {0} as disrupted")]
    MarkPod(Key, #[source] kube::Error),
    #[error("cannot delete Pod {0}")]
    DeletePod(Key, #[source] kube::Error),
    #[error("cannot read JobSet {0}")]
    ReadJobSet(Key, #[source] kube::Error),
    #[error("cannot delete JobSet {0}")]
    DeleteJobSet(Key, #[source] kube::Error),
    #[error("cannot annotate JobSet {0}")]
    AnnotateJobSet(Key, #[source] kube::Error),
    #[error("cannot create PersistentVolumeClaim {0}")]
    CreateClaim(Key, #[source] kube::Error),
    #[error("PersistentVolumeClaim {claim} exists, {reason}: delete it, or rename the volume claim policy")]
    ClaimTaken { claim: Key, reason: String },
    #[error("cannot label PersistentVolumeClaim {0}")]
    LabelClaim(Key, #[source] kube::Error),
    #[error("cannot create RoleBinding {0}, which the agents need")]
    CreateRoleBinding(Key, #[source] kube::Error),
    #[error("RoleBinding {binding} exists, {reason}: delete it, or rename the JobSet")]
    RoleBindingTaken { binding: Key, reason: String },
    #[error("cannot create Service {0}")]
    CreateService(Key, #[source] kube::Error),
    #[error("Service {service} exists, {reason}: delete it, or set another spec.network.subdomain")]
    ServiceTaken { service: Key, reason: String },
    #[error("cannot label Service {0}")]
    LabelService(Key, #[source] kube::Error),
    #[error("cannot write the status of JobSet {0}")]
    WriteStatus(Key, #[source] kube::Error),
    #[error(
        "the CustomResourceDefinition jobsets.{GROUP} is older than this controller, and the API server would drop {}: apply \
         that of this version",
        .0.join(", ")
    )]
    StaleCrd(Vec<String>),
    #[error("lost the Lease {0}, nothing may be done without it")]
    LeaseLost(String, #[source] Lost),
    #[error("leader election cannot work with these durations")]
    ElectionTerms(#[source] InvalidTerms),
    #[error("the configuration of the API server's client is not valid")]
    Client(#[source] kube::Error),
    #[error("a metric cannot be registered")]
    Metrics(#[source] prometheus::Error),
    #[error("cannot listen on {address} for {what}: is the port taken? choose another with --{flag}")]
    Listen { address: SocketAddr, what: &'static str, flag: &'static str, source: std::io::Error },
    #[error("the server of {0} failed")]
    Serve(&'static str, #[source] std::io::Error),
    #[error("the work under way did not end in time; the Lease expires by itself")]
    NotDrained,
}

impl Error {
    /// What it means for the next pass.
    pub(super) fn failure(&self) -> Failure {
        let Some(error) = self.request() else {
            return if matches!(self, Self::JobNotAtRest(_)) { Failure::Outdated } else { Failure::Refused };
        };
        match code(error) {
            Some(409) => Failure::Outdated,
            Some(404) if matches!(self, Self::WriteStatus(..)) => Failure::Outdated,
            Some(429 | 500..) => Failure::Transient,
            Some(_) => Failure::Refused,
            None if matches!(error, kube::Error::SerdeError(_) | kube::Error::BuildRequest(_)) => Failure::Refused,
            None => Failure::Transient,
        }
    }

    /// As far as it decides what happens next.
    pub(super) fn reduced(&self) -> RequestError {
        RequestError { failure: self.failure(), note: self.note() }
    }

    /// Whether the API server refuses to create a Job, and with it all Jobs of its replicatedJob.
    pub(super) fn refuses_jobs(&self) -> bool {
        matches!(self, Self::CreateJob(..)) && self.failure() == Failure::Refused
    }

    /// Whether the request was not sent, because this replica does not lead any more.
    pub(super) fn is_not_leading(&self) -> bool {
        match self.request() {
            Some(kube::Error::Service(source)) => source.is::<NotLeading>(),
            _ => false,
        }
    }

    /// What the user has to know, and do something about.
    pub(super) fn note(&self) -> Option<Note> {
        let reason = match self {
            Self::JobTaken { .. } => event::JOB_CREATION_FAILED,
            Self::ServiceTaken { .. } => event::HEADLESS_SERVICE_CREATION_FAILED,
            Self::ClaimTaken { .. } => event::PVC_CREATION_FAILED,
            Self::RoleBindingTaken { .. } => "RoleBindingTaken",
            _ if self.failure() != Failure::Refused => return None,
            Self::CreateJob(..) => event::JOB_CREATION_FAILED,
            Self::CreateService(..) => event::HEADLESS_SERVICE_CREATION_FAILED,
            Self::CreateClaim(..) => event::PVC_CREATION_FAILED,
            _ => "Refused",
        };
        let message = match self.request() {
            Some(kube::Error::Api(status)) => format!("{self}: {}", status.message),
            Some(error) => format!("{self}: {error}"),
            None => self.to_string(),
        };
        Some(Note::warning(reason, message))
    }

    fn request(&self) -> Option<&kube::Error> {
        match self {
            Self::CreateJob(_, source)
            | Self::DeleteJob(_, source)
            | Self::ReadJob(_, source)
            | Self::ChangeJob(_, source)
            | Self::ReadPod(_, source)
            | Self::MarkPod(_, source)
            | Self::DeletePod(_, source)
            | Self::ReadJobSet(_, source)
            | Self::DeleteJobSet(_, source)
            | Self::AnnotateJobSet(_, source)
            | Self::CreateClaim(_, source)
            | Self::LabelClaim(_, source)
            | Self::CreateRoleBinding(_, source)
            | Self::CreateService(_, source)
            | Self::LabelService(_, source)
            | Self::WriteStatus(_, source) => Some(source),
            _ => None,
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

/// Whether the object with the UID that the request names is gone: there is none of this name, or another one. A patch
/// that names the UID of another object is refused as an attempt to change it.
pub(super) fn is_gone(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let changes_uid = || {
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes.into_iter().any(|cause| cause.field == "metadata.uid")
    };
    status.code == 404 || status.code == 422 && changes_uid()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use rstest::rstest;

    use super::*;

    fn answered(code: u16) -> Error {
        let key = Key { namespace: "ml".to_owned(), name: "train-workers-0".to_owned() };
        Error::ChangeJob(key, kube::Error::Api(Status::failure("too many chips", "").with_code(code).boxed()))
    }

    #[rstest]
    #[case(409, Failure::Outdated)]
    #[case(429, Failure::Transient)]
    #[case(500, Failure::Transient)]
    #[case(503, Failure::Transient)]
    #[case(400, Failure::Refused)]
    #[case(403, Failure::Refused)]
    #[case(404, Failure::Refused)]
    #[case(422, Failure::Refused)]
    fn an_answer_tells_whether_to_try_again(#[case] code: u16, #[case] wanted: Failure) {
        assert_eq!(answered(code).failure(), wanted);
    }

    #[test]
    fn a_job_that_is_refused_speaks_for_its_replicated_job_and_a_taken_name_does_not() {
        let job = Key { namespace: "ml".to_owned(), name: "train-workers-0".to_owned() };
        let answered = |code: u16| kube::Error::Api(Status::failure("", "").with_code(code).boxed());
        let created = |code: u16| Error::CreateJob(job.clone(), answered(code)).refuses_jobs();
        assert_eq!([403, 422, 409, 429, 503].map(created), [true, true, false, false, false]);
        assert!(!Error::ChangeJob(job.clone(), answered(422)).refuses_jobs());
        assert!(!Error::JobTaken { job: job.clone(), reason: String::new() }.refuses_jobs());
    }

    #[test]
    fn a_broken_connection_is_weather_and_not_leading_is_told_from_it() {
        let key = Key { namespace: String::new(), name: String::new() };
        let broken = Error::DeleteJob(key.clone(), kube::Error::Service("connection reset".into()));
        assert_eq!((broken.failure(), broken.is_not_leading()), (Failure::Transient, false));
        assert!(Error::DeleteJob(key, kube::Error::Service(Box::new(NotLeading))).is_not_leading());
    }

    #[test]
    fn only_what_the_user_can_mend_is_told_to_the_user() {
        let note = answered(422).note().unwrap();
        assert_eq!((note.warning, note.reason), (true, "Refused"));
        assert_eq!(note.message, "cannot change Job ml/train-workers-0: too many chips");
        assert_eq!((answered(409).note(), answered(503).note()), (None, None));
    }

    #[test]
    fn refused_creation_has_the_go_jobset_reason() {
        let key = || Key { namespace: "ml".to_owned(), name: "train".to_owned() };
        let answered = || kube::Error::Api(Status::failure("no", "").with_code(422).boxed());
        let errors = [
            Error::CreateJob(key(), answered()),
            Error::JobTaken { job: key(), reason: String::new() },
            Error::CreateService(key(), answered()),
            Error::ServiceTaken { service: key(), reason: String::new() },
            Error::CreateClaim(key(), answered()),
            Error::ClaimTaken { claim: key(), reason: String::new() },
        ];
        let [job, service, claim] = ["JobCreationFailed", "HeadlessServiceCreationFailed", "PVCCreationFailed"];
        let reasons = errors.map(|error| error.note().unwrap().reason);
        assert_eq!(reasons, [job, job, service, service, claim, claim]);
    }
}
