//! The persistent volume claims of `volumeClaimPolicies`.

use jobset_api::{event, names};

use super::Action;
use super::pass::Pass;
use crate::build;

pub(super) fn ensure(pass: &mut Pass<'_>) {
    let (seen, uid) = (pass.seen, pass.seen.jobset.metadata.uid.as_ref());
    let jobset_name = seen.jobset.metadata.name.as_deref().unwrap_or_default();
    for (policy, template) in build::claims(seen.jobset) {
        let name = names::claim(template.metadata.name.as_deref().unwrap_or_default(), jobset_name);
        match seen.claim(&name) {
            None => pass.actions.push(Action::CreateClaim(Box::new(build::claim(seen.jobset, policy, template)))),
            // One that was retained belongs to nobody, and is used again. That of a predecessor goes with it.
            Some(found) => {
                let owner = found.controller.as_ref().filter(|owner| Some(&owner.uid) != uid);
                if let Some(owner) = owner.filter(|owner| !found.deleting && !owner.is_jobset(jobset_name)) {
                    let message = format!(
                        "PersistentVolumeClaim {name} exists and is controlled by {} {}",
                        owner.kind, owner.name
                    );
                    pass.warn(event::PVC_CREATION_FAILED, message);
                }
            }
        }
    }
}
