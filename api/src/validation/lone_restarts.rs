//! Failures that the user expects the group to notice, and that it does not: workers that the kubelet restarts alone, and rules of a
//! podFailurePolicy that count the end of a sidecar.

use k8s_openapi::api::core::v1::PodSpec;

use super::subject::Subject;
use super::warnings::Warnings;
use crate::field::Path;
use crate::restart_rules::is_sidecar;
use crate::{JobTemplateSpec, ReplicatedJob};

/// `backoffLimit` of a Job that sets none, in Kubernetes.
const DEFAULT_BACKOFF_LIMIT: i32 = 6;

/// Warns of failures that restart one worker alone, or that a sidecar can cause.
pub(super) fn warn(subject: &Subject<'_>, spec: &Path<'_>, warnings: &mut Warnings) {
    subject.for_each_job(spec, |replicated_job, path| {
        on_failure(subject, replicated_job, path, warnings);
        any_container(&replicated_job.template.spec, path, warnings);
    });
}

/// Admission sets restartPolicy OnFailure by default, as the Go JobSet does.
fn on_failure(subject: &Subject<'_>, replicated_job: &ReplicatedJob, path: &Path<'_>, warnings: &mut Warnings) {
    let job = &replicated_job.template.spec;
    let pod = job.template.spec.as_ref();
    let limit = job.backoff_limit.unwrap_or(DEFAULT_BACKOFF_LIMIT);
    if pod.and_then(|pod| pod.restart_policy.as_deref()) != Some("OnFailure") || limit == 0 {
        return;
    }
    let remedy = match &subject.spec.failure_policy {
        // One worker for each Job is the common form of Jobs that do not know each other.
        None if job.parallelism.unwrap_or(1) > 1 => "set failurePolicy, and Never, so that the group restarts",
        Some(_) if subject.spec.expected_pods() > 1 => "set Never, so that the failure policy decides at once",
        _ => return,
    };
    let text = format_args!(
        "is OnFailure: a worker that fails restarts alone, {limit} times in each Job, while the others run on. If they need \
         each other, {remedy}"
    );
    warnings.push(&path.child("template.spec.template.spec.restartPolicy"), text);
}

/// A rule without a container's name matches any container, and each restart in place and each end of a Pod ends sidecars with
/// codes of their own.
fn any_container(job: &JobTemplateSpec, path: &Path<'_>, warnings: &mut Warnings) {
    let Some(sidecar) = job.template.spec.as_ref().and_then(sidecar) else { return };
    let rules = path.child("template.spec.podFailurePolicy.rules");
    let policy = job.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    for (index, rule) in policy.enumerate() {
        if rule.on_exit_codes.as_ref().is_some_and(|codes| codes.container_name.is_none()) {
            let text = format_args!(
                "is not set: the rule also matches when \"{sidecar}\" ends with such a code, as when it is killed. Name the \
                 worker's container"
            );
            warnings.push(&rules.index(index).child("onExitCodes.containerName"), text);
        }
    }
}

/// The name of the first native sidecar of a Pod, such as its agent.
fn sidecar(pod: &PodSpec) -> Option<&str> {
    pod.init_containers.iter().flatten().find(|container| is_sidecar(container)).map(|it| it.name.as_str())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{assert_one, in_place, jobset, read};
    use super::super::warnings::warnings;

    const JOB: &str = "/spec/replicatedJobs/1/template/spec";

    fn on_failure(changes: &[(&str, Value)]) -> Vec<String> {
        let policy = format!("{JOB}/template/spec/restartPolicy");
        let changes: Vec<_> =
            [(policy.as_str(), json!("OnFailure"))].into_iter().chain(changes.iter().cloned()).collect();
        warnings(&read(&jobset(&changes)))
    }

    #[rstest]
    #[case::no_failure_policy(json!(null), "6 times in each Job, while the others run on. If they need each other, set failurePolicy")]
    #[case::failure_policy(json!({ "maxRestarts": 3 }), "set Never, so that the failure policy decides at once")]
    fn worker_of_group_that_restarts_alone_gets_warning(#[case] policy: Value, #[case] expected: &str) {
        let found = on_failure(&[("/spec/failurePolicy", policy)]);
        let path = "spec.replicatedJobs[1].template.spec.template.spec.restartPolicy: is OnFailure: ";
        assert_one(&found, path);
        assert_one(&found, expected);
        assert!(found[0].len() < 256, "the API server cuts it off: {}", found[0].len());
    }

    #[rstest]
    #[case::first_failure_fails_the_job(&[("backoffLimit", json!(0))])]
    #[case::jobs_of_one_worker(&[("parallelism", json!(1)), ("completions", json!(1))])]
    #[case::one_worker_by_default(&[("parallelism", Value::Null), ("completions", Value::Null)])]
    fn worker_without_group_that_restarts_alone_gets_no_warning(#[case] changes: &[(&str, Value)]) {
        let pointers: Vec<_> = changes.iter().map(|(field, value)| (format!("{JOB}/{field}"), value.clone())).collect();
        let mut changes: Vec<_> = pointers.iter().map(|(pointer, value)| (pointer.as_str(), value.clone())).collect();
        changes.push(("/spec/failurePolicy", Value::Null));
        assert_eq!(on_failure(&changes), Vec::<String>::new());
    }

    #[rstest]
    #[case::any_container(json!({ "operator": "In", "values": [137] }), 1)]
    #[case::other_operator(json!({ "operator": "NotIn", "values": [3] }), 1)]
    #[case::named(json!({ "containerName": "main", "operator": "In", "values": [137] }), 0)]
    fn rule_for_any_container_beside_sidecar_gets_warning(#[case] codes: Value, #[case] expected: usize) {
        let policy = json!({ "rules": [
            { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
            { "action": "FailJob", "onExitCodes": codes },
        ] });
        let with = (&*format!("{JOB}/podFailurePolicy"), policy);
        let found = warnings(&read(&in_place(std::slice::from_ref(&with))));
        let path = "spec.replicatedJobs[1].template.spec.podFailurePolicy.rules[1].onExitCodes.containerName: \
                    is not set: the rule also matches when \"agent\" ends";
        assert_eq!(found.iter().filter(|found| found.starts_with(path)).count(), expected, "{found:?}");
        assert_eq!(warnings(&read(&jobset(&[with]))), Vec::<String>::new());
    }
}
