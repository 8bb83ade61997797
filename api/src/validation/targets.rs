//! Targets of the success policy and of the rules of the failure policy.

use super::subject::Subject;
use crate::field::{Errors, Path};

const EXISTS: &str = "must name an entry of spec.replicatedJobs";

/// Rejects targets that do not exist: a policy with such a target is never met.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    if let Some(policy) = &subject.spec.success_policy {
        let path = spec.child("successPolicy.targetReplicatedJobs");
        targets(subject, &policy.target_replicated_jobs, &path, errors);
    }
    let path = spec.child("failurePolicy.rules");
    for (index, rule) in subject.spec.failure_rules().iter().enumerate() {
        let path = path.index(index);
        targets(subject, &rule.target_replicated_jobs, &path.child("targetReplicatedJobs"), errors);
    }
}

/// Rejects a success policy if none of its targets exists: the JobSet would never complete.
pub(super) fn check_success(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let Some(policy) = &subject.spec.success_policy else { return };
    if policy.target_replicated_jobs.iter().all(|name| subject.place(name).is_none()) {
        let path = spec.child("successPolicy.targetReplicatedJobs");
        targets(subject, &policy.target_replicated_jobs, &path, errors);
    }
}

fn targets(subject: &Subject<'_>, names: &[String], path: &Path<'_>, errors: &mut Errors) {
    for (index, name) in names.iter().enumerate() {
        if subject.place(name).is_none() {
            errors.not_found(&path.index(index), name, EXISTS);
        }
    }
}
