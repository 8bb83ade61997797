//! Creates the PersistentVolumeClaims of `volumeClaimPolicies`.

use jobset_api::{event, names};

use crate::build;
use crate::reconciliation::Reconciliation;
use crate::types::Action;

pub(super) fn ensure(reconciliation: &mut Reconciliation<'_>) {
    let (observed, uid) = (reconciliation.observed, reconciliation.observed.jobset.metadata.uid.as_ref());
    let jobset_name = observed.jobset.metadata.name.as_deref().unwrap_or_default();
    for (place, template) in build::claims(observed.jobset) {
        let name = names::claim(template.metadata.name.as_deref().unwrap_or_default(), jobset_name);
        match observed.claim(&name) {
            None => reconciliation.actions.push(Action::CreateClaim { name, place }),
            // A retained claim has no owner and is used again. The garbage collector deletes the claim of a predecessor.
            Some(found) => {
                let owner = found.controller.as_ref().filter(|owner| Some(&owner.uid) != uid);
                if let Some(owner) = owner.filter(|owner| !found.deleting && !owner.is_jobset(jobset_name)) {
                    let message = format!(
                        "PersistentVolumeClaim {name} exists and is controlled by {} {}",
                        owner.kind, owner.name
                    );
                    reconciliation.warn(event::PVC_CREATION_FAILED, message);
                }
            }
        }
    }
}
