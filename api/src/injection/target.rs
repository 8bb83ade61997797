//! A Pod template that gets the agent, and what both shapes of the agent do to it.

use k8s_openapi::api::core::v1::{
    Capabilities, Container, LocalObjectReference, PodSpec, SeccompProfile, SecurityContext,
};

use super::Settings;
use super::rules::Rules;
use crate::field::{Errors, Path};

const NAME_TAKEN: &str = "must not be the name of the agent's init container: give the container another name";

/// User of the agent if the Pod names none: an unprivileged user.
const USER: i64 = 65532;

/// A Pod template that gets the agent.
pub(super) struct Target<'a> {
    pub(super) pod: &'a mut PodSpec,
    /// Default container of `kubectl`.
    pub(super) default_container: Option<&'a str>,
    pub(super) rules: Rules,
    pub(super) settings: &'a Settings,
    pub(super) path: &'a Path<'a>,
}

/// Result of an injection, apart from errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The Pod has its agent, unless there are errors.
    Done,
    /// The Pod has an agent of its own and does not change.
    LeftAlone,
    /// No image of the agent is known.
    NoImage,
}

/// The init container with this name. If the Pod has none, a new one is inserted at index 0. It is an error if a main
/// container has the name.
pub(super) fn init_container<'a>(
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

/// Where the image of a container comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Image {
    /// The container has had it before.
    Own,
    /// The injection has set it.
    Injected,
    Missing,
}

/// Gives the container the agent's image and its pull policy, unless it has an image.
pub(super) fn set_image(container: &mut Container, settings: &Settings) -> Image {
    if container.image.is_some() {
        return Image::Own;
    }
    container.image.clone_from(&settings.agent_image);
    if container.image.is_none() {
        return Image::Missing;
    }
    container.image_pull_policy = container.image_pull_policy.take().or_else(|| settings.pull_policy.clone());
    Image::Injected
}

/// Adds the Secrets that the agent's image needs. The Pod's own stay first.
pub(super) fn add_pull_secrets(pod: &mut PodSpec, settings: &Settings) {
    for name in &settings.pull_secrets {
        let secrets = pod.image_pull_secrets.get_or_insert_default();
        if secrets.iter().all(|it| it.name != *name) {
            secrets.push(LocalObjectReference { name: name.clone() });
        }
    }
}

/// A security context of the Pod Security Standard `restricted`. The user is that of the Pod, unless that is absent or
/// root.
pub(super) fn restricted(pod: &PodSpec) -> SecurityContext {
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
