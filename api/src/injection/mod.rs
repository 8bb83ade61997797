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
mod sidecar;
mod supervisor;
#[cfg(test)]
pub(crate) mod tests;
mod token;

use k8s_openapi::api::core::v1::{Capabilities, Container, PodSpec, SeccompProfile, SecurityContext};

use crate::validation::{Errors, Path};
use crate::{JobSetSpec, RestartStrategy, labels};

pub(crate) use supervisor::wrapping;

const NO_IMAGE: &str = "no image of the agent is known: start the webhook with --agent-image, or give its init container \
                        an image in the manifest";
const NOT_LINUX: &str = "must be linux for an agent to be injected: there is none for others";
const NAME_TAKEN: &str = "must not be the name of the agent's init container: give the container another name";

/// User of the agent where the Pod names none: nobody in particular, and not root.
const USER: i64 = 65532;

/// How the agent is injected, the same for all JobSets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Image of the agent. Without one, only containers that have an image are completed.
    pub agent_image: Option<String>,
}

/// Where the agent runs in a Pod; the values of [`labels::INJECT_AGENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// As an init container that always restarts.
    Sidecar,
    /// As the entrypoint of the worker's container.
    Supervisor,
}

impl Shape {
    /// The shape of this name; `None` for any other text.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "Sidecar" => Some(Self::Sidecar),
            "Supervisor" => Some(Self::Supervisor),
            _ => None,
        }
    }
}

/// A Pod template that is to get its agent.
struct Target<'a> {
    pod: &'a mut PodSpec,
    /// Container that `kubectl` acts on unless told otherwise.
    default_container: Option<&'a str>,
    rules: rules::Rules,
    image: Option<&'a str>,
    path: &'a Path<'a>,
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

/// What became of a Pod, apart from what was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It has its agent.
    Done,
    /// It brings an agent of its own.
    LeftAlone,
    /// There is no image for the agent.
    NoImage,
}

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

/// The init container of this name: the one that the Pod has, or a new one at the first place. Refused where another
/// container has the name.
fn init_container<'a>(
    pod: &'a mut PodSpec,
    name: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<&'a mut Container> {
    if let Some(index) = pod.containers.iter().position(|container| container.name == name) {
        errors.invalid(&path.child("containers").index(index).child("name"), name, NAME_TAKEN);
        return None;
    }
    let init = pod.init_containers.get_or_insert_default();
    if init.iter().all(|container| container.name != name) {
        init.insert(0, Container { name: name.to_owned(), ..Container::default() });
    }
    init.iter_mut().find(|container| container.name == name)
}

/// What the Pod Security Standard `restricted` asks for. The user is that of the Pod, if it names one that is not root.
fn restricted(pod: &PodSpec) -> SecurityContext {
    let user = pod.security_context.as_ref().and_then(|context| context.run_as_user);
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        run_as_user: user.is_none_or(|user| user == 0).then_some(USER),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }),
        ..SecurityContext::default()
    }
}
