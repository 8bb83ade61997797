//! A Pod template that gets the agent, and what both shapes of the agent do to it.

use k8s_openapi::api::core::v1::{Capabilities, Container, PodSpec, SeccompProfile, SecurityContext};

use super::rules::Rules;
use crate::field::{Errors, Path};

const NAME_TAKEN: &str = "must not be the name of the agent's init container: give the container another name";

/// User of the agent where the Pod names none: nobody in particular, and not root.
const USER: i64 = 65532;

/// A Pod template that is to get its agent.
pub(super) struct Target<'a> {
    pub(super) pod: &'a mut PodSpec,
    /// Container that `kubectl` acts on unless told otherwise.
    pub(super) default_container: Option<&'a str>,
    pub(super) rules: Rules,
    pub(super) image: Option<&'a str>,
    pub(super) path: &'a Path<'a>,
}

/// What became of a Pod, apart from what was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It has its agent.
    Done,
    /// It brings an agent of its own.
    LeftAlone,
    /// There is no image for the agent.
    NoImage,
}

/// The init container of this name: the one that the Pod has, or a new one at the first place. Refused where another
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

/// What the Pod Security Standard `restricted` asks for. The user is that of the Pod, if it names one that is not root.
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
