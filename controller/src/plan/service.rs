//! Creates the headless Service that gives every Pod its DNS name.

use super::Action;
use super::reconciliation::Reconciliation;

pub(super) fn ensure(reconciliation: &mut Reconciliation<'_>) {
    let jobset = reconciliation.observed.jobset;
    if jobset.spec.dns_hostnames_enabled() && !reconciliation.observed.has_service(jobset.subdomain()) {
        reconciliation.actions.push(Action::CreateService { name: jobset.subdomain().to_owned() });
    }
}
