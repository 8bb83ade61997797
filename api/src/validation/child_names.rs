//! Names of Jobs and Pods, which are made of those of the JobSet and the replicatedJob.

use super::subject::Subject;
use crate::field::{Errors, Path};
use crate::syntax;
use crate::{JobTemplateSpec, ReplicatedJob};

/// Refuses names with which Kubernetes would refuse a Job or the Service. Reckons with the highest indexes, and with the
/// end that the API server adds to `generateName`.
///
/// What counts of a Pod is its host name, `<job>-<index>`. Its own name is that with a random end, which the Job
/// controller cuts to fit, where the Go JobSet refuses it: KEP-467's own story 2 would have Pods named by 64 characters.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let path = Path::root("metadata.name");
    if subject.name.is_empty() {
        errors.required(&path, "name or generateName must be set");
    } else if !subject.name.begins_a_dns_label() {
        errors.invalid(&path, subject.name.to_string(), syntax::DNS_1035_LABEL);
    }
    check_lengths(subject, spec, errors);
}

/// The part of [`check`] without which no Job can be created: names that are too long.
pub(super) fn check_lengths(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let path = spec.child("replicatedJobs");
    for (index, replicated_job) in subject.spec.replicated_jobs.iter().enumerate() {
        let end = Longest::of(replicated_job);
        let length = subject.name.len() + 1 + replicated_job.name.len() + end.len();
        // A name that is malformed is refused as such.
        if length > syntax::LABEL_LENGTH && syntax::is_dns1123_label(&replicated_job.name) {
            let what = if end.pod.is_some() { "Pods' host names" } else { "Jobs' names" };
            let name = format!("{}-{}{end}", subject.name, replicated_job.name);
            let required = format_args!(
                "its {what} would be up to \"{name}\", {length} characters of the 63 that Kubernetes allows: \
                 shorten this name or that of the JobSet"
            );
            errors.invalid(&path.index(index).child("name"), &replicated_job.name, required);
        }
    }
}

/// The highest indexes of a replicatedJob, whose names are the longest.
struct Longest {
    job: i32,
    /// Of an Indexed Job, whose Pods have host names.
    pod: Option<i32>,
}

impl Longest {
    fn of(replicated_job: &ReplicatedJob) -> Self {
        let highest = |count: i32| count.saturating_sub(1).max(0);
        let indexed = |job: &JobTemplateSpec| job.completion_mode.as_deref() == Some("Indexed");
        let job = Some(&replicated_job.template.spec).filter(|job| indexed(job));
        Self { job: highest(replicated_job.replicas()), pod: job.and_then(|job| job.completions).map(highest) }
    }

    fn len(&self) -> usize {
        let digits = |index: i32| index.checked_ilog10().map_or(1, |digits| digits as usize + 1);
        1 + digits(self.job) + self.pod.map_or(0, |pod| 1 + digits(pod))
    }
}

impl std::fmt::Display for Longest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pod {
            Some(pod) => write!(f, "-{}-{pod}", self.job),
            None => write!(f, "-{}", self.job),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{accepts, admissions, jobset, refuses};

    const NAME: &str = "/metadata/name";
    const GENERATE: &str = "/metadata/generateName";
    const COMPLETIONS: &str = "/spec/replicatedJobs/1/template/spec/completions";
    const PARALLELISM: &str = "/spec/replicatedJobs/1/template/spec/parallelism";
    const MODE: &str = "/spec/replicatedJobs/1/template/spec/completionMode";

    // `<name>-workers-1-3`: 12 characters after the name.
    #[rstest]
    #[case::fits(&[(NAME, json!("a".repeat(51)))])]
    #[case::generated_fits(&[(NAME, Value::Null), (GENERATE, json!("a".repeat(46)))])]
    #[case::generated_with_hyphen(&[(NAME, Value::Null), (GENERATE, json!("train-"))])]
    #[case::pods_without_index(&[(NAME, json!("a".repeat(52))), (MODE, json!("NonIndexed"))])]
    fn names_that_fit_are_accepted(#[case] changes: &[(&str, Value)]) {
        accepts(changes);
    }

    #[rstest]
    #[case::pods(
        &[(NAME, json!("a".repeat(52)))],
        r#"spec.replicatedJobs[1].name: Invalid value: "workers": its Pods' host names would be up to "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-workers-1-3", 64 characters of the 63"#
    )]
    #[case::more_pods(
        &[(NAME, json!("a".repeat(51))), (COMPLETIONS, json!(11)), (PARALLELISM, json!(11))],
        "spec.replicatedJobs[1].name: Invalid value: \"workers\": its Pods' host"
    )]
    #[case::more_jobs(&[(NAME, json!("a".repeat(51))), ("/spec/replicatedJobs/1/replicas", json!(11))], "64 characters")]
    #[case::generated(&[(NAME, Value::Null), (GENERATE, json!("a".repeat(47)))], "aaaxxxxx-workers-1-3\", 64 characters")]
    #[case::upper_case(&[(NAME, json!("Train"))], r#"metadata.name: Invalid value: "Train": must consist of"#)]
    #[case::dot(&[(NAME, json!("train.er"))], r#"metadata.name: Invalid value: "train.er": must consist of"#)]
    #[case::digit(&[(NAME, Value::Null), (GENERATE, json!("1-"))], r#"metadata.name: Invalid value: "1-xxxxx": must consist"#)]
    #[case::none(&[(NAME, Value::Null)], "metadata.name: Required value: name or generateName must be set")]
    fn names_that_do_not_fit_are_refused(#[case] changes: &[(&str, Value)], #[case] expected: &str) {
        refuses(changes, expected);
    }

    #[test]
    fn the_service_of_a_jobset_without_jobs_has_a_name_as_well() {
        refuses(
            &[(NAME, json!("train.er")), ("/spec/replicatedJobs", json!([]))],
            "metadata.name: Invalid value: \"train.er\"",
        );
    }

    #[test]
    fn jobs_without_indexes_are_named_shorter_but_not_any_longer() {
        let mut object = jobset(&[(NAME, json!("a".repeat(54))), (MODE, json!("NonIndexed"))]);
        object["spec"]["replicatedJobs"].as_array_mut().unwrap().remove(0);
        let errors = admissions(&object);
        assert!(errors[0].contains("its Jobs' names would be up to"), "{errors:?}");
        assert!(errors[0].contains("-workers-1\", 64 characters"), "{errors:?}");
    }
}
