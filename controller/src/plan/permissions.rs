//! The RoleBinding that lets injected agents watch their JobSet and report the epochs of their Pods.

use jobset_api::injection::Shape;
use jobset_api::{RestartStrategy, labels, names};

use super::Action;
use super::pass::Pass;
use crate::build;

/// Whatever the feature gate says: the agents of a JobSet that shall not restart in place have to read that, too.
pub(super) fn ensure(pass: &mut Pass<'_>) {
    let (seen, jobset) = (pass.seen, pass.seen.jobset);
    let asked = jobset.metadata.annotations.as_ref().and_then(|it| it.get(labels::INJECT_AGENT));
    if asked.and_then(|shape| Shape::of(shape)).is_none()
        || jobset.spec.restart_strategy() != RestartStrategy::InPlaceRestart
    {
        return;
    }
    let jobset_name = jobset.metadata.name.as_deref().unwrap_or_default();
    let name = names::role_binding(jobset_name);
    let Some(found) = seen.role_binding(&name) else {
        let binding = build::role_binding(jobset, &pass.settings.agent_cluster_role);
        return pass.actions.push(Action::CreateRoleBinding(Box::new(binding)));
    };
    // That of a predecessor goes with it.
    let uid = jobset.metadata.uid.as_ref();
    let owner = found.controller.as_ref();
    if owner.map(|owner| &owner.uid) != uid && !found.deleting && !owner.is_some_and(|it| it.is_jobset(jobset_name)) {
        let owner = owner.map_or("nobody".to_owned(), |owner| format!("{} {}", owner.kind, owner.name));
        pass.warn("RoleBindingTaken", format!("RoleBinding {name} exists and is controlled by {owner}: delete it"));
    }
}
