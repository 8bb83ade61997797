//! The headless Service that gives every Pod its DNS name.

use super::{Action, Pass};
use crate::build;

pub(super) fn ensure(pass: &mut Pass<'_>) {
    let jobset = &pass.seen.jobset;
    if jobset.spec.dns_hostnames_enabled() && !pass.seen.services.contains_key(jobset.subdomain()) {
        pass.actions.push(Action::CreateService(Box::new(build::service(jobset))));
    }
}
