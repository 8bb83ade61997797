//! Creates the RoleBinding by which injected agents watch their JobSet and report the epochs of their Pods.

use jobset_api::injection::Shape;
use jobset_api::{RestartStrategy, event, labels, names};

use crate::reconciliation::Reconciliation;
use crate::types::Action;

/// Ignores the feature gate InPlaceRestart: an agent needs the permission also to read that in-place restart is disabled.
pub(super) fn ensure(reconciliation: &mut Reconciliation<'_>) {
    let (observed, jobset) = (reconciliation.observed, reconciliation.observed.jobset);
    let injection = jobset.annotation(labels::INJECT_AGENT);
    if injection.and_then(Shape::of).is_none() || jobset.spec.restart_strategy() != RestartStrategy::InPlaceRestart {
        return;
    }
    let jobset_name = jobset.metadata.name.as_deref().unwrap_or_default();
    let name = names::role_binding(jobset_name);
    let Some(found) = observed.role_binding(&name) else {
        let cluster_role = reconciliation.settings.agent_cluster_role.clone();
        return reconciliation.actions.push(Action::CreateRoleBinding { name, cluster_role });
    };
    // The garbage collector deletes the RoleBinding of a predecessor.
    let uid = jobset.metadata.uid.as_ref();
    let owner = found.controller.as_ref();
    if owner.map(|owner| &owner.uid) != uid && !found.deleting && !owner.is_some_and(|it| it.is_jobset(jobset_name)) {
        let owner = owner.map_or("nobody".to_owned(), |owner| format!("{} {}", owner.kind, owner.name));
        reconciliation.warn(
            event::ROLE_BINDING_TAKEN,
            format!("RoleBinding {name} exists and is controlled by {owner}: delete it"),
        );
    }
}
