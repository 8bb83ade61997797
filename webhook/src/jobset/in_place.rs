//! What `restartStrategy: InPlaceRestart` requires of every replicatedJob (KEP-467, "Implementation - Webhook
//! validation"). Without one of these, a failed Pod would fail its Job, two Pods would report for one worker, or the
//! group would wait for ever for a Pod that has no agent.

use jobset_api::effective::{MAX_BACKOFF_LIMIT, REPLACE_FAILED};
use jobset_api::restart_rules::is_agent_sidecar;
use jobset_api::{JobSetSpec, JobTemplateSpec, RestartStrategy};

use crate::field::{Errors, Path};

const BACKOFF_LIMIT: &str = "must be 2147483647 with restartStrategy InPlaceRestart, so that failed Pods do not fail \
                             their Job";
const POD_REPLACEMENT_POLICY: &str = "must be \"Failed\" with restartStrategy InPlaceRestart, so that a Pod is \
                                      replaced only after it has fully failed";
const COMPLETION_MODE: &str = "must be \"Indexed\" with restartStrategy InPlaceRestart: a worker is known by its index";
const COMPLETIONS: &str = "must equal parallelism with restartStrategy InPlaceRestart: the group starts when all of its \
                           workers are there";
const AGENT: &str = "must contain the agent with restartStrategy InPlaceRestart: a sidecar (restartPolicy: Always) \
                     with an entry of restartPolicyRules whose action is RestartPod or RestartAllContainers";

/// Checks every replicatedJob of a JobSet that restarts in place.
pub fn validate(spec: &JobSetSpec, path: &Path<'_>, errors: &mut Errors) {
    if spec.restart_strategy() != RestartStrategy::InPlaceRestart {
        return;
    }
    let replicated_jobs = path.child("replicatedJobs");
    for (index, replicated_job) in spec.replicated_jobs.iter().enumerate() {
        let job = &replicated_job.template.spec;
        let replicated_job = replicated_jobs.index(index);
        let path = replicated_job.child("template.spec");
        backoff_limit(job, &path, errors);
        pod_replacement_policy(job, &path, errors);
        one_pod_for_each_index(job, &path, errors);
        agent(job, &path, errors);
    }
}

fn backoff_limit(job: &JobTemplateSpec, path: &Path<'_>, errors: &mut Errors) {
    let field = path.child("backoffLimit");
    match job.backoff_limit {
        Some(MAX_BACKOFF_LIMIT) => {}
        Some(found) => errors.invalid(&field, found, BACKOFF_LIMIT),
        None => errors.required(&field, BACKOFF_LIMIT),
    }
}

fn pod_replacement_policy(job: &JobTemplateSpec, path: &Path<'_>, errors: &mut Errors) {
    let field = path.child("podReplacementPolicy");
    match job.pod_replacement_policy.as_deref() {
        Some(REPLACE_FAILED) => {}
        Some(found) => errors.invalid(&field, found, POD_REPLACEMENT_POLICY),
        None => errors.required(&field, POD_REPLACEMENT_POLICY),
    }
}

/// A slot of the group is a completion index. Without indexes there are no slots, and an index whose Pod is to start only
/// when another has succeeded would hold the barrier closed for ever.
fn one_pod_for_each_index(job: &JobTemplateSpec, path: &Path<'_>, errors: &mut Errors) {
    if let Some(found) = job.completion_mode.as_deref().filter(|mode| *mode != "Indexed") {
        errors.invalid(&path.child("completionMode"), found, COMPLETION_MODE);
    }
    let parallelism = job.parallelism.unwrap_or(1);
    if job.completions.unwrap_or(1) != parallelism {
        let field = path.child("completions");
        match job.completions {
            Some(found) => errors.invalid(&field, found, COMPLETIONS),
            None => errors.required(&field, COMPLETIONS),
        }
    }
}

fn agent(job: &JobTemplateSpec, path: &Path<'_>, errors: &mut Errors) {
    let field = path.child("template.spec.initContainers");
    let containers = job.template.spec.as_ref().and_then(|pod| pod.init_containers.as_deref()).unwrap_or_default();
    if containers.iter().any(is_agent_sidecar) {
        return;
    }
    let found: Vec<_> = containers.iter().map(|container| &container.name).collect();
    if found.is_empty() {
        errors.required(&field, AGENT);
    } else {
        errors.invalid(&field, found, AGENT);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn agent() -> Value {
        json!({ "name": "agent", "restartPolicy": "Always", "restartPolicyRules": [{
            "action": "RestartPod", "exitCodes": { "operator": "In", "values": [81] } }] })
    }

    /// The Job specification of the seeds' manifest.
    fn good() -> Value {
        json!({ "backoffLimit": i32::MAX, "podReplacementPolicy": "Failed", "template": { "spec": {
            "initContainers": [agent()], "containers": [{ "name": "worker" }] } } })
    }

    fn errors(strategy: &str, jobs: &[Value]) -> Vec<String> {
        let jobs: Vec<_> = jobs.iter().map(|job| json!({ "name": "w", "template": { "spec": job } })).collect();
        let spec = json!({ "failurePolicy": { "restartStrategy": strategy }, "replicatedJobs": jobs });
        let mut errors = Errors::default();
        validate(&serde_json::from_value(spec).unwrap(), &Path::root("spec"), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut job = good();
        *job.pointer_mut(pointer).unwrap() = value;
        job
    }

    fn with_init_containers(containers: Value) -> Value {
        with("/template/spec/initContainers", containers)
    }

    #[rstest]
    #[case::the_seeds_words(good())]
    #[case::the_words_of_kubernetes(with("/template/spec/initContainers/0/restartPolicyRules/0/action", json!("RestartAllContainers")))]
    #[case::other_init_containers_around_it(with_init_containers(json!([{ "name": "setup" }, agent(), { "name": "log" }])))]
    fn a_complete_replicated_job_is_accepted(#[case] job: Value) {
        assert_eq!(errors("InPlaceRestart", &[job]), Vec::<String>::new());
    }

    #[rstest]
    #[case::backoff_limit_wrong(with("/backoffLimit", json!(6)), "spec.replicatedJobs[0].template.spec.backoffLimit: Invalid value: 6: must be 2147483647")]
    #[case::backoff_limit_zero(with("/backoffLimit", json!(0)), "spec.replicatedJobs[0].template.spec.backoffLimit: Invalid value: 0: must be 2147483647")]
    #[case::backoff_limit_absent(
        with("/backoffLimit", Value::Null),
        "spec.replicatedJobs[0].template.spec.backoffLimit: Required value: must be 2147483647"
    )]
    #[case::replacement_wrong(with("/podReplacementPolicy", json!("TerminatingOrFailed")), r#"spec.replicatedJobs[0].template.spec.podReplacementPolicy: Invalid value: "TerminatingOrFailed": must be "Failed""#)]
    #[case::replacement_absent(
        with("/podReplacementPolicy", Value::Null),
        r#"spec.replicatedJobs[0].template.spec.podReplacementPolicy: Required value: must be "Failed""#
    )]
    #[case::no_init_containers(
        with_init_containers(Value::Null),
        "spec.replicatedJobs[0].template.spec.template.spec.initContainers: Required value: must contain the agent"
    )]
    #[case::no_pod(with("/template", json!({})), "spec.replicatedJobs[0].template.spec.template.spec.initContainers: Required value: must contain the agent")]
    #[case::init_container_not_a_sidecar(with("/template/spec/initContainers/0/restartPolicy", json!("Never")), r#"spec.replicatedJobs[0].template.spec.template.spec.initContainers: Invalid value: ["agent"]: must contain the agent"#)]
    #[case::sidecar_without_rules(
        with("/template/spec/initContainers/0/restartPolicyRules", Value::Null),
        r#"Invalid value: ["agent"]: must contain the agent"#
    )]
    #[case::sidecar_that_restarts_itself_alone(with("/template/spec/initContainers/0/restartPolicyRules/0/action", json!("Restart")), r#"Invalid value: ["agent"]: must contain the agent"#)]
    fn a_broken_rule_is_named_with_path_found_and_required(#[case] job: Value, #[case] expected: &str) {
        let errors = errors("InPlaceRestart", &[job]);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(expected), "{errors:?}");
    }

    #[test]
    fn every_error_of_every_replicated_job_is_reported_at_once() {
        let errors = errors("InPlaceRestart", &[good(), json!({ "backoffLimit": 1 })]);
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(errors.iter().all(|error| error.starts_with("spec.replicatedJobs[1].template.spec.")), "{errors:?}");
    }

    #[rstest]
    #[case("Recreate")]
    #[case("BlockingRecreate")]
    fn other_strategies_require_none_of_it(#[case] strategy: &str) {
        assert_eq!(errors(strategy, &[json!({})]), Vec::<String>::new());
    }
}
