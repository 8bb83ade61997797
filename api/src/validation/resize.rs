//! The numbers of a replicatedJob that may change while it runs (KEP-463): `replicas`, and the `parallelism` and
//! `completions` of elastic Jobs.
//!
//! A Job is elastic if it is Indexed and its completions equal its parallelism, before and after the change. Then every
//! worker has an index, and a resize adds or removes the highest indexes. Kubernetes allows no other resize.

use crate::field::{Errors, Path};
use crate::{JobTemplateSpec, ReplicatedJob};

const FINISHED: &str = "the JobSet has finished. Delete it and create it again";
const NOT_LAST: &str = "it can change only in the last replicatedJob, since the Jobs of those after it are numbered on \
                        from its Jobs (label jobset.sigs.k8s.io/job-global-index). Delete the JobSet and create it again";
const NOT_ELASTIC: &str = "it can change only in Indexed Jobs whose completions equal parallelism, before and after. \
                           Delete the JobSet and create it again";
const GATE_OFF: &str = "the feature gate ElasticJobSet is off. Start controller and webhook with \
                        --feature-gates=ElasticJobSet=true, or delete the JobSet and create it again";
const TOGETHER: &str = "completions must be equal to parallelism for Elastic Indexed Jobs: change both together";
const NOT_ZERO: &str = "set spec.suspend to stop all Pods, or replicas to 0";

/// The replicatedJob that is resized.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResizeScope {
    /// Whether the feature gate ElasticJobSet is on.
    pub elastic: bool,
    pub finished: bool,
    /// Whether it is the last replicatedJob of the JobSet.
    pub last: bool,
}

/// Copies the numbers of `new` to `expected`, and rejects changes that are not allowed.
pub(super) fn take_over(
    expected: &mut ReplicatedJob,
    new: &ReplicatedJob,
    scope: ResizeScope,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let obstacle = obstacle(scope);
    if expected.replicas() != new.replicas()
        && let Some(reason) = obstacle.or((!scope.last).then_some(NOT_LAST))
    {
        let required = format_args!("field is immutable: must stay {}: {reason}", expected.replicas());
        errors.invalid(&path.child("replicas"), new.replicas(), required);
    }
    expected.replicas = new.replicas;
    let (before, after) = (&mut expected.template.spec, &new.template.spec);
    pods(before, after, obstacle, &path.child("template.spec"), errors);
    (before.parallelism, before.completions) = (after.parallelism, after.completions);
}

/// Why the JobSet cannot be resized. `None` if it can.
fn obstacle(scope: ResizeScope) -> Option<&'static str> {
    match scope {
        ResizeScope { finished: true, .. } => Some(FINISHED),
        ResizeScope { elastic: false, .. } => Some(GATE_OFF),
        ResizeScope { .. } => None,
    }
}

fn pods(
    before: &JobTemplateSpec,
    after: &JobTemplateSpec,
    obstacle: Option<&str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut changed = Vec::new();
    if before.parallelism != after.parallelism {
        changed.push(("parallelism", before.parallelism, after.parallelism));
    }
    if before.completions != after.completions {
        changed.push(("completions", before.completions, after.completions));
    }
    if changed.is_empty() {
        return;
    }
    if let Some(reason) = obstacle.or((!is_elastic(before)).then_some(NOT_ELASTIC)) {
        for (field, before, after) in changed {
            let before = before.map_or_else(|| "absent".to_owned(), |number| number.to_string());
            errors.invalid(&path.child(field), after, format_args!("field is immutable: must stay {before}: {reason}"));
        }
        return;
    }
    for (field, _, number) in changed {
        if let Some(number) = number.filter(|number| *number < 1) {
            errors.invalid(&path.child(field), number, format_args!("{field} must be >= 1: {NOT_ZERO}"));
        }
    }
    if !is_even(after) {
        errors.invalid(&path.child("completions"), after.completions, TOGETHER);
    }
}

fn is_elastic(job: &JobTemplateSpec) -> bool {
    job.completion_mode.as_deref() == Some("Indexed") && is_even(job)
}

/// Whether there is one worker for each index. Kubernetes sets the default of one number only if both are absent.
fn is_even(job: &JobTemplateSpec) -> bool {
    match (job.parallelism, job.completions) {
        (None, None | Some(1)) => true,
        (parallelism, completions) => parallelism.is_some() && parallelism == completions,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{Changes, assert_one, changed, in_place, jobset, read};
    use super::super::validate_update;
    use crate::gates::Gates;

    const REPLICAS: &str = "/spec/replicatedJobs/1/replicas";
    const MODE: &str = "/spec/replicatedJobs/1/template/spec/completionMode";
    const PARALLELISM: &str = "/spec/replicatedJobs/1/template/spec/parallelism";
    const COMPLETIONS: &str = "/spec/replicatedJobs/1/template/spec/completions";

    fn errors(old: &Value, changes: Changes<'_>) -> Vec<String> {
        let new = changed(old.clone(), changes);
        validate_update(&read(old), &read(&new), Gates::default()).iter().map(ToString::to_string).collect()
    }

    #[rstest]
    #[case::more_jobs(&[(REPLICAS, json!(5))])]
    #[case::fewer_jobs(&[(REPLICAS, json!(1))])]
    #[case::no_jobs(&[(REPLICAS, json!(0))])]
    #[case::more_pods(&[(PARALLELISM, json!(8)), (COMPLETIONS, json!(8))])]
    #[case::fewer_pods(&[(PARALLELISM, json!(1)), (COMPLETIONS, json!(1))])]
    #[case::all_at_once(&[(REPLICAS, json!(3)), (PARALLELISM, json!(3)), (COMPLETIONS, json!(3))])]
    #[case::one_pod_by_default(&[(PARALLELISM, Value::Null), (COMPLETIONS, json!(1))])]
    fn resize_of_running_jobset_is_accepted(#[case] changes: Changes<'_>) {
        assert_eq!(errors(&jobset(&[]), changes), Vec::<String>::new());
        assert_eq!(errors(&in_place(&[]), changes), Vec::<String>::new());
    }

    #[rstest]
    #[case::parallelism_alone(&[], &[(PARALLELISM, json!(2))], "spec.replicatedJobs[1].template.spec.completions: Invalid value: 4: completions must be equal to parallelism for Elastic Indexed Jobs")]
    #[case::completions_alone(&[], &[(COMPLETIONS, json!(2))], "spec.replicatedJobs[1].template.spec.completions: Invalid value: 2: completions must be equal to parallelism for Elastic Indexed Jobs")]
    #[case::no_indexes(
        &[(MODE, json!("NonIndexed"))], &[(PARALLELISM, json!(2))],
        "spec.replicatedJobs[1].template.spec.parallelism: Invalid value: 2: field is immutable: must stay 4: it can change only in Indexed Jobs whose"
    )]
    #[case::several_rounds(
        &[(COMPLETIONS, json!(8))], &[(COMPLETIONS, json!(4))],
        "spec.replicatedJobs[1].template.spec.completions: Invalid value: 4: field is immutable: must stay 8: it can change only in Indexed Jobs whose"
    )]
    #[case::negative(&[], &[(REPLICAS, json!(-1))], "spec.replicatedJobs[1].replicas: Invalid value: -1: must not be negative")]
    #[case::beyond_the_coordinator(
        &[("/spec/coordinator", json!({ "replicatedJob": "workers", "jobIndex": 1 }))], &[(REPLICAS, json!(1))],
        "spec.coordinator.jobIndex: Invalid value: 1: must be an index of the 1 replicas"
    )]
    #[case::finished(
        &[("/status", json!({ "terminalState": "Completed" }))], &[(REPLICAS, json!(3))],
        "spec.replicatedJobs[1].replicas: Invalid value: 3: field is immutable: must stay 2: the JobSet has finished"
    )]
    fn resize_of_fixed_size_is_rejected(
        #[case] old: Changes<'_>,
        #[case] changes: Changes<'_>,
        #[case] expected: &str,
    ) {
        assert_one(&errors(&jobset(old), changes), expected);
    }

    #[test]
    fn replicas_of_last_replicated_job_only_can_change() {
        let errors = errors(&jobset(&[]), &[("/spec/replicatedJobs/0/replicas", json!(3))]);
        assert_one(
            &errors,
            "spec.replicatedJobs[0].replicas: Invalid value: 3: field is immutable: must stay 1: it can change only in the last replicatedJob",
        );
    }

    #[test]
    fn resize_to_zero_pods_is_rejected() {
        let errors = errors(&jobset(&[]), &[(PARALLELISM, json!(0)), (COMPLETIONS, json!(0))]);
        assert_eq!(errors.len(), 2);
        assert!(
            errors[0].contains("parallelism: Invalid value: 0: parallelism must be >= 1: set spec.suspend"),
            "{errors:?}"
        );
    }

    #[test]
    fn resize_with_gate_off_is_rejected() {
        let off = Gates { elastic_job_set: false, ..Gates::default() };
        let errors = |changes: Changes<'_>| -> Vec<String> {
            let old = jobset(&[]);
            let new = changed(old.clone(), changes);
            validate_update(&read(&old), &read(&new), off).iter().map(ToString::to_string).collect()
        };
        let pods = errors(&[(PARALLELISM, json!(8)), (COMPLETIONS, json!(8))]);
        assert_eq!(pods.len(), 2);
        let expected = "must stay 4: the feature gate ElasticJobSet is off";
        assert!(pods.iter().all(|error| error.contains(expected)), "{pods:?}");
        assert_one(
            &errors(&[(REPLICAS, json!(3))]),
            "spec.replicatedJobs[1].replicas: Invalid value: 3: field is immutable: must stay 2: the feature gate",
        );
        assert_eq!(errors(&[("/spec/suspend", json!(true))]), Vec::<String>::new());
    }

    #[test]
    fn resize_of_finished_jobset_is_rejected() {
        let failed = json!({ "type": "Failed", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let old = jobset(&[("/status", json!({ "conditions": [failed] }))]);
        let errors = errors(&old, &[(PARALLELISM, json!(8)), (COMPLETIONS, json!(8))]);
        assert_eq!(errors.len(), 2);
        assert!(
            errors.iter().all(|error| error.contains("field is immutable: must stay 4: the JobSet has finished")),
            "{errors:?}"
        );
    }
}
