//! Creates the children beside the Jobs: Service, PersistentVolumeClaims and RoleBinding.

use jobset_api::injection::Shape;
use jobset_api::{RestartStrategy, event, labels, names};
use jobset_store::{ControllerRef, Kind};

use crate::build;
use crate::reconciliation::Reconciliation;
use crate::types::Action;

/// The PersistentVolumeClaims of `volumeClaimPolicies`. A retained claim has no owner and is used again.
pub(super) fn ensure_claims(reconciliation: &mut Reconciliation<'_>) {
    let observed = reconciliation.observed;
    for (place, template) in build::claims(observed.jobset) {
        let name = names::claim(template.metadata.name.as_deref().unwrap_or_default(), observed.name());
        let Some(found) = observed.owned(Kind::Claim, &name) else {
            reconciliation.actions.push(Action::CreateClaim { name, place });
            continue;
        };
        let owner = found.controller.as_ref().filter(|owner| observed.is_taken(Some(owner), found.deleting));
        if let Some(ControllerRef { kind, name: owner, .. }) = owner {
            let message = format!("PersistentVolumeClaim {name} exists and is controlled by {kind} {owner}");
            reconciliation.warn(event::PVC_CREATION_FAILED, message);
        }
    }
}

/// The headless Service that gives every Pod its DNS name. That of another JobSet may select its own Pods alone: the request to create
/// one finds out, and says so.
pub(super) fn ensure_service(reconciliation: &mut Reconciliation<'_>) {
    let jobset = reconciliation.observed.jobset;
    let found = || reconciliation.observed.owned(Kind::Service, jobset.subdomain());
    let is_own = |owner: &ControllerRef| jobset.metadata.uid.as_deref() == Some(&*owner.uid);
    let exists = || found().is_some_and(|found| found.controller.as_ref().is_none_or(is_own));
    if jobset.spec.dns_hostnames_enabled() && !exists() {
        reconciliation.actions.push(Action::CreateService { name: jobset.subdomain().to_owned() });
    }
}

/// The RoleBinding by which injected agents watch their JobSet and report the epochs of their Pods.
///
/// Ignores the feature gate InPlaceRestart: an agent needs the permission also to read that in-place restart is disabled.
pub(super) fn ensure_role_binding(reconciliation: &mut Reconciliation<'_>) {
    let (observed, jobset) = (reconciliation.observed, reconciliation.observed.jobset);
    let injection = jobset.annotation(labels::INJECT_AGENT);
    if injection.and_then(Shape::of).is_none() || jobset.spec.restart_strategy() != RestartStrategy::InPlaceRestart {
        return;
    }
    let name = names::role_binding(observed.name());
    let Some(found) = observed.owned(Kind::RoleBinding, &name) else {
        let cluster_role = reconciliation.settings.agent_cluster_role.clone();
        return reconciliation.actions.push(Action::CreateRoleBinding { name, cluster_role });
    };
    let owner = found.controller.as_ref();
    if observed.is_taken(owner, found.deleting) {
        let owner = owner.map_or("nobody".to_owned(), |owner| format!("{} {}", owner.kind, owner.name));
        let message = format!("RoleBinding {name} exists and is controlled by {owner}: delete it");
        reconciliation.warn(event::ROLE_BINDING_TAKEN, message);
    }
}
