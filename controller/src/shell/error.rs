//! Failed requests on the objects of a JobSet.

use jobset_api::event;
use jobset_engine::{Failure, RequestError};
use jobset_rules::Note;
use jobset_store::Kind;
use jobset_store::pods::shorten;
use kube::core::Status;

use super::lease::NotLeading;

/// Longest message of a refusal, in bytes. The API server may show a whole template, for each field that is wrong.
const LONGEST: usize = 2048;

/// A failed request. The text names the request; the source is the cause.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error("cannot {verb} {} {object}{}", .kind.name(), purpose(*.kind))]
    Api { verb: &'static str, kind: Kind, object: String, source: kube::Error },
    #[error("{} {object} exists, {reason}: delete it, or {}", .kind.name(), alternative(*.kind))]
    Taken { kind: Kind, object: String, reason: String },
    #[error(
        "cannot create the RoleBinding of the agents: {missing}. Without the policy jobset-agent, an agent could change every \
         Pod of its namespace: install it with the manifests of the controller"
    )]
    AgentsUnconfined { missing: &'static str },
    #[error("cannot create the RoleBinding of the agents: cannot read the {object} jobset-agent, which confines them")]
    PolicyUnread { object: &'static str, source: kube::Error },
    #[error(
        "cannot resume Job {object} with the resources that the JobSet has now. Resources of a suspended Job can change only \
         with the feature gate MutablePodResourcesForSuspendedJobs of the API server, which is on by default since Kubernetes \
         1.36. The controller tries again. To run the Job as it was, suspend the JobSet and set its resources back"
    )]
    ResourcesRefused { object: String, source: kube::Error },
    #[error(
        "cannot remove the finalizer batch.kubernetes.io/job-tracking from failed Pods, for which the controller needs the \
         right to patch Pods. Until then, the successors of lost Pods wait for the back-off of the Job controller"
    )]
    NotReleased(#[source] kube::Error),
    #[error("the API server refuses Pods of Job {object} to the Job controller: {reason}")]
    PodsRefused { object: String, reason: String },
    #[error("the Job controller has not carried out the suspension of Job {0} yet")]
    NotYetSuspended(String),
    #[error("a request for {0} has no answer, and too many others have none: it was cut short")]
    CutShort(String),
}

/// Verbs that decide what a failure means.
pub(super) const CREATE: &str = "create";
pub(super) const WRITE_STATUS: &str = "write the status of";

fn purpose(kind: Kind) -> &'static str {
    if kind == Kind::RoleBinding { ", which the agents need" } else { "" }
}

fn alternative(kind: Kind) -> &'static str {
    match kind {
        Kind::Service => "set another spec.network.subdomain",
        Kind::Claim => "rename the volume claim policy",
        _ => "rename the JobSet",
    }
}

impl ApplyError {
    /// The HTTP status of the API server's answer.
    pub(super) fn code(&self) -> Option<u16> {
        self.cause().and_then(code)
    }

    /// The error of the client, if a request was sent.
    fn cause(&self) -> Option<&kube::Error> {
        match self {
            Self::Api { source, .. }
            | Self::PolicyUnread { source, .. }
            | Self::ResourcesRefused { source, .. }
            | Self::NotReleased(source) => Some(source),
            Self::Taken { .. }
            | Self::AgentsUnconfined { .. }
            | Self::PodsRefused { .. }
            | Self::NotYetSuspended(_)
            | Self::CutShort(_) => None,
        }
    }

    /// What the failure means for the next reconciliation.
    pub(super) fn failure(&self) -> Failure {
        let (verb, source) = match self {
            Self::Api { verb, source, .. } => (*verb, source),
            Self::PolicyUnread { source, .. } => ("get", source),
            Self::Taken { .. }
            | Self::AgentsUnconfined { .. }
            | Self::ResourcesRefused { .. }
            | Self::PodsRefused { .. }
            | Self::NotReleased(_) => return Failure::Refused,
            Self::NotYetSuspended(_) => return Failure::Outdated,
            Self::CutShort(_) => return Failure::Transient,
        };
        match self.code() {
            Some(409) => Failure::Outdated,
            Some(404) if verb == WRITE_STATUS => Failure::Outdated,
            Some(429 | 500..) => Failure::Transient,
            Some(_) => Failure::Refused,
            None if matches!(source, kube::Error::SerdeError(_) | kube::Error::BuildRequest(_)) => Failure::Refused,
            None => Failure::Transient,
        }
    }

    /// The error, as far as the engine needs it. The user hears of a failure that the user can correct.
    pub(super) fn reduced(&self) -> RequestError {
        let failure = self.failure();
        RequestError { failure, note: (failure == Failure::Refused).then(|| self.note()) }
    }

    /// The same for a request that was slow. The user hears of a transient failure, too: it may be a webhook that hangs.
    pub(super) fn reduced_late(&self) -> RequestError {
        let failure = self.failure();
        RequestError { failure, note: (failure != Failure::Outdated).then(|| self.note()) }
    }

    /// The error of a request that releases a Pod. What is refused for one Pod is refused for others, so it names none.
    pub(super) fn of_release(self) -> Self {
        match self {
            Self::Api { source, .. } if code(&source) == Some(403) => Self::NotReleased(source),
            error => error,
        }
    }

    /// Whether the API server refuses what several actions share: to create a Job, and with it all Jobs of its replicatedJob, or
    /// to release Pods.
    pub(super) fn refuses_shared(&self) -> bool {
        let is_shared = matches!(self, Self::Api { verb: CREATE, kind: Kind::Job, .. } | Self::NotReleased(_));
        is_shared && self.failure() == Failure::Refused
    }

    /// Whether the request was not sent, because this replica does not lead any more.
    pub(super) fn is_not_leading(&self) -> bool {
        matches!(self.cause(), Some(kube::Error::Service(source)) if source.is::<NotLeading>())
    }

    /// The Event for a failure. The reasons are those of the Go JobSet where it has one.
    fn note(&self) -> Note {
        let reason = match self {
            Self::Taken { kind: Kind::RoleBinding, .. } => event::ROLE_BINDING_TAKEN,
            Self::AgentsUnconfined { .. } => event::AGENT_POLICY_MISSING,
            Self::ResourcesRefused { .. } => event::FAILED_RESOURCE_PROPAGATION,
            Self::PodsRefused { .. } => event::PODS_REFUSED,
            Self::Taken { kind, .. } | Self::Api { verb: CREATE, kind, .. } => match kind {
                Kind::Job => event::JOB_CREATION_FAILED,
                Kind::Service => event::HEADLESS_SERVICE_CREATION_FAILED,
                Kind::Claim => event::PVC_CREATION_FAILED,
                _ => event::REFUSED,
            },
            _ => event::REFUSED,
        };
        let message = match self.cause() {
            // The API server shows the whole template before it says what is wrong.
            Some(kube::Error::Api(status)) if matches!(self, Self::ResourcesRefused { .. }) => {
                format!("{self}: {}", causes(status))
            }
            // It begins with the name of the Pod.
            Some(kube::Error::Api(status)) if matches!(self, Self::NotReleased(_)) => {
                let reason =
                    status.message.split_once(" is forbidden: ").map_or(&*status.message, |(_, reason)| reason);
                format!("{self}: {reason}")
            }
            Some(kube::Error::Api(status)) => format!("{self}: {}", status.message),
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        };
        Note::warning(reason, shorten(&message, LONGEST))
    }
}

/// What is wrong, by field, without the values. All that the API server says if it names no fields.
fn causes(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let text = |message: &str| message.rsplit(": ").next().unwrap_or_default().to_owned();
    let causes: Vec<String> = causes.map(|it| format!("{}: {}", it.field, text(&it.message))).collect();
    if causes.is_empty() { status.message.clone() } else { causes.join(", ") }
}

/// The HTTP status of the API server's answer.
pub(super) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Whether the object with the UID that the request names is gone: there is none of this name, or another one. The API server
/// refuses a patch with the UID of another object as an attempt to change the UID.
pub(super) fn is_gone(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 404 || status.code == 422 && causes.any(|cause| cause.field == "metadata.uid")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn api(verb: &'static str, kind: Kind, code: u16) -> ApplyError {
        let object = "ml/train".to_owned();
        let source = kube::Error::Api(Status::failure("no", "").with_code(code).boxed());
        ApplyError::Api { verb, kind, object, source }
    }

    fn taken(kind: Kind) -> ApplyError {
        let object = "ml/train".to_owned();
        ApplyError::Taken { kind, object, reason: "controlled by nobody".to_owned() }
    }

    #[rstest]
    #[case(api("change", Kind::Job, 409), Failure::Outdated)]
    #[case(api("change", Kind::Job, 429), Failure::Transient)]
    #[case(api("change", Kind::Job, 500), Failure::Transient)]
    #[case(api("change", Kind::Job, 503), Failure::Transient)]
    #[case(api("change", Kind::Job, 400), Failure::Refused)]
    #[case(api("change", Kind::Job, 403), Failure::Refused)]
    #[case(api("change", Kind::Job, 404), Failure::Refused)]
    #[case(api(WRITE_STATUS, Kind::JobSet, 404), Failure::Outdated)]
    #[case(taken(Kind::Job), Failure::Refused)]
    fn failure_depends_on_the_answer(#[case] error: ApplyError, #[case] expected: Failure) {
        let (reduced, late) = (error.reduced(), error.reduced_late());
        assert_eq!((reduced.failure, late.failure), (expected, expected));
        assert_eq!(reduced.note.is_some(), expected == Failure::Refused);
        assert_eq!(late.note.is_some(), expected != Failure::Outdated, "a slow request that fails");
    }

    #[test]
    fn failure_without_an_answer_is_transient() {
        let failed = |cause: tower::BoxError| {
            let object = "ml/train".to_owned();
            ApplyError::Api { verb: "delete", kind: Kind::Job, object, source: kube::Error::Service(cause) }
        };
        let broken = failed("connection reset".into());
        assert_eq!((broken.failure(), broken.is_not_leading()), (Failure::Transient, false));
        assert!(failed(Box::new(NotLeading)).is_not_leading());
    }

    #[test]
    fn rejected_job_rejects_all_of_its_replicated_job() {
        assert!([403, 422].iter().all(|code| api(CREATE, Kind::Job, *code).refuses_shared()));
        let others = [api(CREATE, Kind::Job, 409), api(CREATE, Kind::Job, 503), api(CREATE, Kind::Service, 422)];
        assert!(!others.iter().any(ApplyError::refuses_shared));
        assert!(!api("change", Kind::Job, 422).refuses_shared() && !taken(Kind::Job).refuses_shared());
    }

    fn resources_refused() -> ApplyError {
        let message = "Invalid value: {\"labels\": {\"a\": \"b\"}}: field is immutable";
        let details = serde_json::json!({"causes": [{"field": "spec.template", "message": message}]});
        let details = serde_json::from_value(details).unwrap();
        let status = Status { details: Some(details), ..Status::failure(message, "").with_code(422) };
        ApplyError::ResourcesRefused { object: "ml/train".to_owned(), source: kube::Error::Api(status.boxed()) }
    }

    #[test]
    fn refused_resources_name_the_gate_of_the_api_server() {
        let (error, gate) = (resources_refused(), "feature gate MutablePodResourcesForSuspendedJobs of the API server");
        assert!(error.to_string().contains(gate), "{error}");
        assert_eq!(error.failure(), Failure::Refused);
    }

    #[test]
    fn refused_release_refuses_that_of_all_pods_and_names_none() {
        let refused = |pod: &str| {
            let message = format!("pods \"{pod}\" is forbidden: User \"c\" cannot patch resource \"pods\"");
            let source = kube::Error::Api(Status::failure(&message, "Forbidden").with_code(403).boxed());
            ApplyError::Api { verb: "change", kind: Kind::Pod, object: format!("ml/{pod}"), source }.of_release()
        };
        assert!(refused("a").refuses_shared() && refused("a").failure() == Failure::Refused);
        assert_eq!(refused("a").note(), refused("b").note());
        assert!(refused("a").note().message.ends_with("Job controller: User \"c\" cannot patch resource \"pods\""));
        assert!(!api("change", Kind::Pod, 503).of_release().refuses_shared());
    }

    fn pods_refused() -> ApplyError {
        ApplyError::PodsRefused { object: "ml/train".to_owned(), reason: "forbidden: exceeded quota: q".to_owned() }
    }

    #[rstest]
    #[case(
        resources_refused(),
        "FailedResourcePropagation",
        "set its resources back: spec.template: field is immutable"
    )]
    #[case(api("change", Kind::Job, 422), "Refused", "cannot change Job ml/train: no")]
    #[case(api(CREATE, Kind::Job, 422), "JobCreationFailed", "cannot create Job ml/train: no")]
    #[case(api(CREATE, Kind::Service, 422), "HeadlessServiceCreationFailed", "cannot create Service ml/train: no")]
    #[case(api(CREATE, Kind::Claim, 422), "PVCCreationFailed", "cannot create PersistentVolumeClaim ml/train: no")]
    #[case(
        api(CREATE, Kind::RoleBinding, 422),
        "Refused",
        "cannot create RoleBinding ml/train, which the agents need: no"
    )]
    #[case(pods_refused(), "PodsRefused", "Pods of Job ml/train to the Job controller: forbidden: exceeded quota: q")]
    #[case(taken(Kind::Job), "JobCreationFailed", "delete it, or rename the JobSet")]
    #[case(taken(Kind::Service), "HeadlessServiceCreationFailed", "delete it, or set another spec.network.subdomain")]
    #[case(taken(Kind::Claim), "PVCCreationFailed", "delete it, or rename the volume claim policy")]
    #[case(ApplyError::AgentsUnconfined { missing: "it is missing" }, "AgentPolicyMissing", "manifests of the controller")]
    #[case(
        taken(Kind::RoleBinding),
        "RoleBindingTaken",
        "exists, controlled by nobody: delete it, or rename the JobSet"
    )]
    fn refused_request_has_the_reason_of_its_kind(#[case] error: ApplyError, #[case] reason: &str, #[case] end: &str) {
        let note = error.note();
        assert!((note.warning, note.reason) == (true, reason) && note.message.ends_with(end), "{note:?}");
    }

    #[test]
    fn long_message_of_refusal_is_kept_in_part() {
        let source = kube::Error::Api(Status::failure(&"x".repeat(1 << 20), "").with_code(422).boxed());
        let error = ApplyError::Api { verb: CREATE, kind: Kind::Job, object: "ml/train".to_owned(), source };
        let message = error.note().message;
        assert!(message.starts_with("cannot create Job ml/train: x") && message.len() == LONGEST, "{}", message.len());
    }
}
