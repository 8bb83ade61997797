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
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{accepts, rejects};

    const FIRST: &str = "/spec/replicatedJobs/0";

    #[rstest]
    #[case::digit_first("/name", json!("0-driver"))]
    #[case::no_jobs("/replicas", json!(0))]
    #[case::as_many_as_an_indexed_job_may_have("/template/spec/parallelism", json!(100_000))]
    #[case::in_a_group("/groupName", json!("trainers"))]
    #[case::in_the_default_group("/groupName", json!(""))]
    fn replicated_job_with_valid_name_and_numbers_is_accepted(#[case] field: &str, #[case] value: Value) {
        accepts(&[(&format!("{FIRST}{field}"), value)]);
    }

    #[rstest]
    #[case::upper_case("/name", json!("Driver"), r#"name: Invalid value: "Driver": must consist of lower-case letters"#)]
    #[case::no_name("/name", json!(""), r#"name: Invalid value: "": must consist of"#)]
    #[case::hyphen_last("/name", json!("driver-"), r#"name: Invalid value: "driver-": must consist of"#)]
    #[case::twice("/name", json!("workers"), r#"spec.replicatedJobs[1].name: Duplicate value: "workers": must be unique"#)]
    #[case::group("/groupName", json!("1st"), r#"groupName: Invalid value: "1st": must consist of"#)]
    #[case::replicas("/replicas", json!(-1), "replicas: Invalid value: -1: must not be negative")]
    #[case::parallelism("/template/spec/parallelism", json!(-2), "template.spec.parallelism: Invalid value: -2: must not be")]
    #[case::completions("/template/spec/completions", json!(-3), "template.spec.completions: Invalid value: -3: must not be")]
    fn replicated_job_with_invalid_name_or_number_is_rejected(
        #[case] field: &str,
        #[case] value: Value,
        #[case] expected: &str,
    ) {
        rejects(&[(&format!("{FIRST}{field}"), value)], expected);
    }

    #[rstest]
    #[case::pods(
        &[("/spec/replicatedJobs/0/replicas", json!(70_000)), ("/spec/replicatedJobs/0/template/spec/parallelism", json!(70_000))],
        "spec.replicatedJobs[0].replicas: Invalid value: 70000: replicas * parallelism must not exceed 2147483647, and is 4900000000"
    )]
    #[case::jobs(
        &[("/spec/replicatedJobs/0/replicas", json!(i32::MAX))],
        "spec.replicatedJobs: Invalid value: 2147483649: the replicas of all replicatedJobs together"
    )]
    fn replicated_jobs_with_too_many_jobs_or_pods_are_rejected(
        #[case] changes: &[(&str, Value)],
        #[case] expected: &str,
    ) {
        rejects(changes, expected);
    }
}
