//! Injects the agent into the Pods of a JobSet that restarts in place and has the annotation [`labels::INJECT_AGENT`].
//! Without it, users must write everything by hand that KEP-467 requires.
//!
//! A field that is set does not change. If a container has the agent's name, only its absent fields are set. A Pod that
//! has an agent of another name does not change. The injection is idempotent and does no I/O: the webhook applies it to
//! admitted objects, and `kubectl jobset validate` to files.

mod barrier;
mod environment;
mod epoch;
mod folder;
pub(crate) mod progress;
pub(crate) mod projected;
mod resources;
mod rules;
mod shape;
mod sidecar;
mod supervisor;
mod target;
#[cfg(test)]
pub(crate) mod tests;

use k8s_openapi::api::core::v1::PodSpec;

use crate::field::{Errors, Path};
use crate::{JobSet, JobSetSpec, JobTemplateSpec, RestartStrategy, labels};

pub use progress::StallSettings;
pub use resources::{AgentResources, Amounts};
pub use shape::Shape;
pub(crate) use supervisor::wrapping;
use target::{Outcome, Target};

const NO_IMAGE: &str = "no image of the agent is known: start the webhook with --agent-image, or give its init container \
                        an image in the manifest";
const NOT_LINUX: &str = "must be linux: there is no agent for other operating systems";

/// Settings of the injection. Apart from `stalls`, they are the same for all JobSets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Image of the agent. Without it, only a container that already has an image becomes the agent.
    pub agent_image: Option<String>,
    /// `imagePullPolicy` of a container that gets this image. If absent, Kubernetes decides by the tag.
    pub pull_policy: Option<String>,
    /// Secrets that a Pod with this image names in `imagePullSecrets`, after its own.
    pub pull_secrets: Vec<String>,
    /// Requests and limits of the agent's container, if it sets none itself.
    pub agent_resources: AgentResources,
    /// Address of the relays' Service, `HOST:PORT`, which the agent gets with a token for the relays. If absent, the agent
    /// gets neither.
    pub relay: Option<String>,
    /// What agents are told of progress, if the JobSet asks for any ([`Settings::of`]).
    pub stalls: Option<StallSettings>,
}

impl Settings {
    /// These settings, with what the annotations of the JobSet ask for.
    #[must_use]
    pub fn of(&self, jobset: &JobSet) -> Self {
        Self { stalls: StallSettings::of(jobset), ..self.clone() }
    }
}

/// Injects the agent into the Pod template of every replicatedJob, in the shape that the annotation names. Returns the
/// errors that prevent an injection; Pods with errors do not change. If the annotation names no [`Shape`], nothing
/// changes.
pub fn inject(spec: &mut JobSetSpec, annotation: &str, settings: &Settings) -> Errors {
    let mut errors = Errors::default();
    let Some(shape) = Shape::of(annotation).filter(|_| spec.restart_strategy() == RestartStrategy::InPlaceRestart)
    else {
        return errors;
    };
    let (root, mut imageless) = (Path::root("spec"), false);
    let replicated_jobs = root.child("replicatedJobs");
    for (index, replicated_job) in spec.replicated_jobs.iter_mut().enumerate() {
        let path = replicated_jobs.index(index);
        let path = path.child("template.spec.template.spec");
        let outcome = inject_job(&mut replicated_job.template.spec, shape, settings, &path, &mut errors);
        imageless |= outcome == Outcome::NoImage;
    }
    if imageless {
        errors.forbidden(&Path::annotation(labels::INJECT_AGENT), NO_IMAGE);
    }
    errors
}

/// Injects the agent into the Pod template of a Job, which has this path. A Pod with errors does not change.
pub(crate) fn inject_job(
    job: &mut JobTemplateSpec,
    shape: Shape,
    settings: &Settings,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Outcome {
    let Some(pod) = &job.template.spec else { return Outcome::LeftAlone };
    let metadata = job.template.metadata.as_ref();
    let default_container = metadata.and_then(|it| it.annotations.as_ref()?.get(DEFAULT_CONTAINER));
    let mut injected = pod.clone();
    let mut target = Target {
        pod: &mut injected,
        default_container: default_container.map(String::as_str),
        rules: rules::Rules::beside(job.pod_failure_policy.as_ref()),
        settings,
        path,
    };
    let before = count(errors);
    check(target.pod, settings, path, errors);
    let outcome = match shape {
        Shape::Sidecar => sidecar::inject(&mut target, errors),
        Shape::Supervisor => supervisor::inject(&mut target, errors),
    };
    if outcome == Outcome::Done && count(errors) == before {
        job.template.spec = Some(injected);
    }
    outcome
}

/// Annotation of a Pod: the default container of `kubectl`.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Rejects Pods into which no agent can be injected.
fn check(pod: &PodSpec, settings: &Settings, path: &Path<'_>, errors: &mut Errors) {
    if let Some(os) = pod.os.as_ref().filter(|os| os.name != "linux") {
        errors.invalid(&path.child("os.name"), &os.name, NOT_LINUX);
    }
    folder::check(pod, path, errors);
    projected::TOKEN.check(pod, path, errors);
    if settings.relay.is_some() {
        projected::RELAY_CREDENTIALS.check(pod, path, errors);
    }
    if settings.stalls.is_some() {
        progress::check(pod, path, errors);
    }
}

fn count(errors: &Errors) -> usize {
    errors.iter().len() + errors.omitted()
}
