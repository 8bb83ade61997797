//! The numbers of a replicatedJob that may change while it runs (KEP-463): `replicas`, and the `parallelism` and
//! `completions` of elastic Jobs.
//!
//! A Job is elastic when it is Indexed and its completions equal its parallelism, before the change and after it: every
//! worker has an index, and indexes come and go at the end. Kubernetes itself allows no more.

use crate::field::{Errors, Path};
use crate::{JobTemplateSpec, ReplicatedJob};

const FINISHED: &str = "the JobSet has finished. Create another";
const NOT_LAST: &str = "it can change only in the last replicatedJob, since the Jobs of those after it are numbered on \
                        from its Jobs (label jobset.sigs.k8s.io/job-global-index). Create another JobSet instead";
const NOT_ELASTIC: &str = "it can change only in Indexed Jobs whose completions equal parallelism, before and after. \
                           Create another JobSet instead";
const GATE_OFF: &str = "the feature gate ElasticJobSet is off. Start controller and webhook with \
                        --feature-gates=ElasticJobSet=true, or create another JobSet instead";
const TOGETHER: &str = "completions must be equal to parallelism for Elastic Indexed Jobs: change both together";
const NOT_ZERO: &str = "set spec.suspend to stop all Pods, or replicas to 0";

/// Which replicatedJob is resized.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// The feature gate ElasticJobSet is on.
    pub elastic: bool,
    /// Its JobSet has finished.
    pub finished: bool,
    /// It is the last of its JobSet.
    pub last: bool,
}

/// Takes the numbers of `new` over into `expected`, and refuses those that may not change so.
pub(super) fn take_over(
    expected: &mut ReplicatedJob,
    new: &ReplicatedJob,
    standing: Standing,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let held = held(standing);
    if expected.replicas() != new.replicas()
        && let Some(reason) = held.or((!standing.last).then_some(NOT_LAST))
    {
        let required = format_args!("field is immutable: must stay {}: {reason}", expected.replicas());
        errors.invalid(&path.child("replicas"), new.replicas(), required);
    }
    expected.replicas = new.replicas;
    let (before, after) = (&mut expected.template.spec, &new.template.spec);
    pods(before, after, held, &path.child("template.spec"), errors);
    (before.parallelism, before.completions) = (after.parallelism, after.completions);
}

/// Why nothing of the JobSet can be resized, if so.
fn held(standing: Standing) -> Option<&'static str> {
    match standing {
        Standing { finished: true, .. } => Some(FINISHED),
        Standing { elastic: false, .. } => Some(GATE_OFF),
        Standing { .. } => None,
    }
}

fn pods(before: &JobTemplateSpec, after: &JobTemplateSpec, held: Option<&str>, path: &Path<'_>, errors: &mut Errors) {
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
    if let Some(reason) = held.or((!is_elastic(before)).then_some(NOT_ELASTIC)) {
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

/// Whether there is one worker for each index. Kubernetes defaults both numbers, or none.
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
    fn a_running_jobset_can_be_resized(#[case] changes: Changes<'_>) {
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
    fn a_size_that_cannot_be_reached_is_refused(
        #[case] old: Changes<'_>,
        #[case] changes: Changes<'_>,
        #[case] expected: &str,
    ) {
        assert_one(&errors(&jobset(old), changes), expected);
    }

    #[test]
    fn the_jobs_of_the_last_replicated_job_alone_come_and_go() {
        let errors = errors(&jobset(&[]), &[("/spec/replicatedJobs/0/replicas", json!(3))]);
        assert_one(
            &errors,
            "spec.replicatedJobs[0].replicas: Invalid value: 3: field is immutable: must stay 1: it can change only in the last replicatedJob",
        );
    }

    #[test]
    fn no_pods_is_no_size() {
        let errors = errors(&jobset(&[]), &[(PARALLELISM, json!(0)), (COMPLETIONS, json!(0))]);
        assert_eq!(errors.len(), 2);
        assert!(
            errors[0].contains("parallelism: Invalid value: 0: parallelism must be >= 1: set spec.suspend"),
            "{errors:?}"
        );
    }

    #[test]
    fn gate_off_refuses_every_size() {
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
    fn the_pods_of_a_finished_jobset_stay_as_many_as_they_were() {
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
