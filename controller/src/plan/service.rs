//! The headless Service that gives every Pod its DNS name.

use super::Action;
use super::pass::Pass;
use crate::build;

pub(super) fn ensure(pass: &mut Pass<'_>) {
    let jobset = pass.seen.jobset;
    if jobset.spec.dns_hostnames_enabled() && !pass.seen.has_service(jobset.subdomain()) {
        pass.actions.push(Action::CreateService(Box::new(build::service(jobset))));
    }
}
