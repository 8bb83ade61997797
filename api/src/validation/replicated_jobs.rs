//! Names and numbers of replicatedJobs.

use std::collections::HashSet;

use super::subject::Subject;
use crate::ReplicatedJob;
use crate::field::{Errors, Path};
use crate::syntax;

const UNIQUE: &str = "must be unique: Jobs are named after their replicatedJob";
const NOT_NEGATIVE: &str = "must not be negative";
const JOBS: &str = "the replicas of all replicatedJobs together must not exceed 2147483647";

/// Rejects names that are not DNS labels or not unique, and numbers that are negative or too large.
///
/// A name may start with a digit, as in the Go JobSet: the name of a Job starts with that of the JobSet.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    check_jobs(subject, spec, errors);
    let path = spec.child("replicatedJobs");
    let jobs: i64 = subject.spec.replicated_jobs.iter().map(|job| i64::from(job.replicas().max(0))).sum();
    if jobs > i64::from(i32::MAX) {
        errors.invalid(&path, jobs, JOBS);
    }
    for (index, replicated_job) in subject.spec.replicated_jobs.iter().enumerate() {
        let pods =
            i64::from(replicated_job.replicas()) * i64::from(replicated_job.template.spec.parallelism.unwrap_or(1));
        if pods > i64::from(i32::MAX) {
            let required = format_args!("replicas * parallelism must not exceed 2147483647, and is {pods}");
            errors.invalid(&path.index(index).child("replicas"), replicated_job.replicas(), required);
        }
        if !syntax::is_dns1035_label(replicated_job.group_name()) {
            let path = path.index(index);
            errors.invalid(&path.child("groupName"), replicated_job.group_name(), syntax::DNS_1035_LABEL);
        }
    }
}

/// The part of [`check`] without which no Job can be created.
pub(super) fn check_jobs(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let path = spec.child("replicatedJobs");
    let mut names = HashSet::with_capacity(subject.spec.replicated_jobs.len());
    for (index, replicated_job) in subject.spec.replicated_jobs.iter().enumerate() {
        let path = path.index(index);
        if !syntax::is_dns1123_label(&replicated_job.name) {
            errors.invalid(&path.child("name"), &replicated_job.name, syntax::DNS_1123_LABEL);
        } else if !names.insert(replicated_job.name.as_str()) {
            errors.duplicate(&path.child("name"), &replicated_job.name, UNIQUE);
        }
        numbers(replicated_job, &path, errors);
    }
}

fn numbers(replicated_job: &ReplicatedJob, path: &Path<'_>, errors: &mut Errors) {
    let job = &replicated_job.template.spec;
    let template = path.child("template.spec");
    let numbers = [
        (path.child("replicas"), replicated_job.replicas),
        (template.child("parallelism"), job.parallelism),
        (template.child("completions"), job.completions),
    ];
    for (path, number) in numbers {
        if let Some(negative) = number.filter(|number| *number < 0) {
            errors.invalid(&path, negative, NOT_NEGATIVE);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{accepts, rejects};

    #[test]
    fn indexed_job_may_have_as_many_pods_as_kubernetes_allows() {
        accepts(&[("/spec/replicatedJobs/0/template/spec/parallelism", json!(100_000))]);
    }

    #[test]
    fn duplicate_name_or_negative_replicas_are_rejected() {
        let twice = r#"spec.replicatedJobs[1].name: Duplicate value: "workers": must be unique"#;
        rejects(&[("/spec/replicatedJobs/0/name", json!("workers"))], twice);
        rejects(&[("/spec/replicatedJobs/0/replicas", json!(-1))], "replicas: Invalid value: -1: must not be negative");
    }
}
