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
    use serde_json::{Value, json};

    use super::super::testing::{Changes, assert_one, changed, in_place, jobset, read};
    use super::super::validate_update;
    use crate::gates::Gates;

    const REPLICAS: &str = "/spec/replicatedJobs/1/replicas";
    const PARALLELISM: &str = "/spec/replicatedJobs/1/template/spec/parallelism";
    const COMPLETIONS: &str = "/spec/replicatedJobs/1/template/spec/completions";

    #[test]
    fn resize_to_default_parallelism_is_accepted() {
        for old in [jobset(&[]), in_place(&[])] {
            let new = changed(old.clone(), &[(PARALLELISM, Value::Null), (COMPLETIONS, json!(1))]);
            assert_eq!(validate_update(&read(&old), &read(&new), Gates::default()).to_string(), "");
        }
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
}
