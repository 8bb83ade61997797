//! Names of Jobs and Pods. They consist of the names of the JobSet and the replicatedJob, and of indexes.

use super::subject::Subject;
use crate::field::{Errors, Path};
use crate::syntax;
use crate::{JobTemplateSpec, ReplicatedJob};

/// Rejects names with which the API server would refuse a Job or the Service. The lengths include the highest indexes
/// and the suffix that the API server adds to `generateName`.
///
/// For a Pod, the host name `<job>-<index>` counts. The name of the Pod also has a random suffix, and the Job
/// controller shortens it if needed. The Go JobSet rejects such names, but story 2 of KEP-467 has Pod names of 64
/// characters.
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
        let end = HighestIndexes::of(replicated_job);
        let length = subject.name.len() + 1 + replicated_job.name.len() + end.len();
        // Another rule rejects a malformed name.
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

/// The highest indexes of a replicatedJob. The names with these indexes are the longest.
pub(super) struct HighestIndexes {
    job: i32,
    /// `None` unless the Job is Indexed, so that its Pods have host names.
    pub(super) pod: Option<i32>,
}

impl HighestIndexes {
    pub(super) fn of(replicated_job: &ReplicatedJob) -> Self {
        let highest = |count: i32| count.saturating_sub(1).max(0);
        let indexed = |job: &JobTemplateSpec| job.completion_mode.as_deref() == Some("Indexed");
        let job = Some(&replicated_job.template.spec).filter(|job| indexed(job));
        Self { job: highest(replicated_job.replicas()), pod: job.and_then(|job| job.completions).map(highest) }
    }

    /// Characters of the indexes, with a hyphen before each.
    pub(super) fn len(&self) -> usize {
        let digits = |index: i32| index.checked_ilog10().map_or(1, |digits| digits as usize + 1);
        1 + digits(self.job) + self.pod.map_or(0, |pod| 1 + digits(pod))
    }
}

impl std::fmt::Display for HighestIndexes {
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

    use super::super::testing::rejects;

    #[rstest]
    #[case::upper_case(json!("Train"), r#"metadata.name: Invalid value: "Train": must consist of"#)]
    #[case::none(Value::Null, "metadata.name: Required value: name or generateName must be set")]
    fn malformed_name_is_rejected(#[case] name: Value, #[case] expected: &str) {
        rejects(&[("/metadata/name", name)], expected);
    }
}
