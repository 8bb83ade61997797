//! Creates the headless Service that gives every Pod its DNS name.

use crate::reconciliation::Reconciliation;
use crate::types::Action;

pub(super) fn ensure(reconciliation: &mut Reconciliation<'_>) {
    let jobset = reconciliation.observed.jobset;
    if jobset.spec.dns_hostnames_enabled() && !reconciliation.observed.has_service(jobset.subdomain()) {
        reconciliation.actions.push(Action::CreateService { name: jobset.subdomain().to_owned() });
    }
}
