//! The order in which replicatedJobs start.

use std::collections::HashSet;

use super::subject::Subject;
use crate::field::{Errors, Path};
use crate::{JobSetSpec, StartupPolicyOrder};

const EXISTS: &str = "must name an earlier entry of spec.replicatedJobs";
const ITSELF: &str = "must name an earlier entry of spec.replicatedJobs: a replicatedJob cannot wait for itself";
const LATER: &str = "must name an earlier entry of spec.replicatedJobs: move that one before this one";
const UNIQUE: &str = "must be unique: one dependency on a replicatedJob is enough";
const IN_ORDER: &str = "must be AnyOrder when a replicatedJob has dependsOn, which gives the order itself: use dependsOn \
                        alone";

/// Rejects dependencies that cannot be met, and dependsOn together with InOrder. A dependency must be earlier in the
/// list, so there are no cycles.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    check_order(subject, spec, errors);
    let path = spec.child("replicatedJobs");
    for (index, replicated_job) in subject.spec.replicated_jobs.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("dependsOn");
        let mut names = HashSet::with_capacity(replicated_job.depends_on.len());
        for (entry, dependency) in replicated_job.depends_on.iter().enumerate() {
            if !names.insert(dependency.name.as_str()) {
                let path = path.index(entry);
                errors.duplicate(&path.child("name"), &dependency.name, UNIQUE);
            }
        }
    }
    if is_in_order(subject.spec) && subject.spec.replicated_jobs.iter().any(|it| !it.depends_on.is_empty()) {
        errors.invalid(&spec.child("startupPolicy.startupPolicyOrder"), StartupPolicyOrder::InOrder, IN_ORDER);
    }
}

/// The part of [`check`] without which a replicatedJob never starts.
pub(super) fn check_order(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let path = spec.child("replicatedJobs");
    for (index, replicated_job) in subject.spec.replicated_jobs.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("dependsOn");
        for (entry, dependency) in replicated_job.depends_on.iter().enumerate() {
            let path = path.index(entry);
            let path = path.child("name");
            let name = &dependency.name;
            match subject.place(name) {
                None => errors.not_found(&path, name, EXISTS),
                Some(place) if place == index => errors.invalid(&path, name, ITSELF),
                Some(place) if place > index => errors.invalid(&path, name, LATER),
                Some(_) => {}
            }
        }
    }
}

/// Whether the startup policy is InOrder.
pub(super) fn is_in_order(spec: &JobSetSpec) -> bool {
    spec.startup_policy.as_ref().is_some_and(|policy| policy.startup_policy_order == StartupPolicyOrder::InOrder)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::rejects;

    const SECOND: &str = "/spec/replicatedJobs/1/dependsOn";

    fn on(names: &[&str]) -> Value {
        names.iter().map(|name| json!({ "name": name, "status": "Ready" })).collect()
    }

    #[rstest]
    #[case::twice(&[(SECOND, on(&["driver", "driver"]))], r#"spec.replicatedJobs[1].dependsOn[1].name: Duplicate value: "driver""#)]
    #[case::two_orders(
        &[(SECOND, on(&["driver"])), ("/spec/startupPolicy", json!({ "startupPolicyOrder": "InOrder" }))],
        r#"spec.startupPolicy.startupPolicyOrder: Invalid value: "InOrder": must be AnyOrder when a replicatedJob has dependsOn"#
    )]
    fn startup_order_that_cannot_be_met_is_rejected(#[case] changes: &[(&str, Value)], #[case] expected: &str) {
        rejects(changes, expected);
    }
}
