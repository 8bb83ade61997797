//! Puts the agent into the Pods of a JobSet that asks for it by annotation ([`labels::INJECT_AGENT`]) and restarts in
//! place: all that KEP-467 makes its users write by hand, in place, readable in a manifest.
//!
//! What is set stays as it is: a container of the agent's name is completed field by field, a Pod that has its agent
//! under another name is left alone. Injecting twice changes nothing. Pure: the webhook does it to what it admits, a
//! check of a file to what it reads.

mod barrier;
mod environment;
mod epoch;
mod folder;
mod resources;
mod rules;
mod shape;
mod sidecar;
mod supervisor;
mod target;
#[cfg(test)]
pub(crate) mod tests;
mod token;

use k8s_openapi::api::core::v1::PodSpec;

use crate::field::{Errors, Path};
use crate::{JobSetSpec, RestartStrategy, labels};

pub use shape::Shape;
pub(crate) use supervisor::wrapping;
use target::{Outcome, Target};

const NO_IMAGE: &str = "no image of the agent is known: start the webhook with --agent-image, or give its init container \
                        an image in the manifest";
const NOT_LINUX: &str = "must be linux for an agent to be injected: there is none for others";
/// How the agent is injected, the same for all JobSets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Image of the agent. Without one, only containers that have an image are completed.
    pub agent_image: Option<String>,
}

/// Injects the agent into the Pod template of every replicatedJob, as the annotation's value says; what stands against it
/// comes out, and those Pods are left as they were. A value that is no [`Shape`] injects nothing.
pub fn inject(spec: &mut JobSetSpec, annotation: &str, settings: &Settings) -> Errors {
    let mut errors = Errors::default();
    let Some(shape) = Shape::of(annotation).filter(|_| spec.restart_strategy() == RestartStrategy::InPlaceRestart)
    else {
        return errors;
    };
    let (root, mut imageless) = (Path::root("spec"), false);
    let replicated_jobs = root.child("replicatedJobs");
    for (index, replicated_job) in spec.replicated_jobs.iter_mut().enumerate() {
        let job = &mut replicated_job.template.spec;
        let Some(pod) = &job.template.spec else { continue };
        let path = replicated_jobs.index(index);
        let path = path.child("template.spec.template.spec");
        let metadata = job.template.metadata.as_ref();
        let default_container = metadata.and_then(|it| it.annotations.as_ref()?.get(DEFAULT_CONTAINER));
        let mut injected = pod.clone();
        let mut target = Target {
            pod: &mut injected,
            default_container: default_container.map(String::as_str),
            rules: rules::Rules::beside(job.pod_failure_policy.as_ref()),
            image: settings.agent_image.as_deref(),
            path: &path,
        };
        let before = count(&errors);
        possible(target.pod, &path, &mut errors);
        let outcome = match shape {
            Shape::Sidecar => sidecar::inject(&mut target, &mut errors),
            Shape::Supervisor => supervisor::inject(&mut target, &mut errors),
        };
        imageless |= outcome == Outcome::NoImage;
        if outcome == Outcome::Done && count(&errors) == before {
            job.template.spec = Some(injected);
        }
    }
    if imageless {
        errors.forbidden(&Path::root("metadata.annotations").key(labels::INJECT_AGENT), NO_IMAGE);
    }
    errors
}

/// Annotation of a Pod: the container that `kubectl` acts on unless told otherwise.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Refuses Pods that no agent fits into.
fn possible(pod: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    if let Some(os) = pod.os.as_ref().filter(|os| os.name != "linux") {
        errors.invalid(&path.child("os.name"), &os.name, NOT_LINUX);
    }
    folder::check(pod, path, errors);
    token::check(pod, path, errors);
}

fn count(errors: &Errors) -> usize {
    errors.iter().len() + errors.omitted()
}
