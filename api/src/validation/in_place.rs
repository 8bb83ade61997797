//! Requirements of `restartStrategy: InPlaceRestart` (KEP-467, "Implementation - Webhook validation"). If one of them
//! is not met, a failed Pod fails its Job, two Pods report for one worker, or the group waits forever for a Pod that
//! has no agent or is never created.

use super::depends_on::is_in_order;
use super::inject_agent;
use super::subject::Subject;
use crate::agent::Agent;
use crate::effective::{MAX_BACKOFF_LIMIT, REPLACE_FAILED};
use crate::field::{Errors, Path};
use crate::{JobTemplateSpec, ReplicatedJob, RestartStrategy, StartupPolicyOrder};

const GATE: &str = "must not be InPlaceRestart while the feature gate InPlaceRestart is off: start controller and webhook \
                    with --feature-gates=InPlaceRestart=true, or use restartStrategy Recreate";
const IN_ORDER: &str = "must be AnyOrder with restartStrategy InPlaceRestart: no worker starts before all of them are at \
                        the barrier, and later replicatedJobs would be created only when the workers of earlier ones are \
                        ready. Start them together and let the workers wait for each other, or use restartStrategy \
                        Recreate";
const DEPENDS_ON: &str = "must be empty with restartStrategy InPlaceRestart: no worker starts before all of them are at \
                          the barrier, and this replicatedJob would be created only when the workers of others are ready \
                          or have succeeded. Start them together and let the workers wait for each other, or use \
                          restartStrategy Recreate";
const BACKOFF_LIMIT: &str = "must be 2147483647 with restartStrategy InPlaceRestart, so that failed Pods do not fail \
                             their Job";
const POD_REPLACEMENT_POLICY: &str = "must be \"Failed\" with restartStrategy InPlaceRestart, so that a Pod is \
                                      replaced only after it has fully failed";
const RESTART_POLICY: &str = "must be \"Never\" with restartStrategy InPlaceRestart, so that no container restarts alone: \
                              restartPolicyRules of the containers say which exit codes restart the Pod";
const COMPLETION_MODE: &str = "must be \"Indexed\" with restartStrategy InPlaceRestart: an index identifies a worker";
const COMPLETIONS: &str = "must equal parallelism with restartStrategy InPlaceRestart: the group starts when all of its \
                           workers are there";
const AGENT: &str = "must contain the agent with restartStrategy InPlaceRestart: a sidecar (restartPolicy: Always) \
                     with an entry of restartPolicyRules whose action is RestartPod or RestartAllContainers, unless it is \
                     the entrypoint of the worker. The annotation jobset.sigs.k8s.io/inject-agent adds it";
const MISSPELT: &str = "no agent is added: the annotation is jobset.sigs.k8s.io/inject-agent";

/// Rejects a JobSet with restartStrategy InPlaceRestart that cannot restart in place.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let strategy = subject.spec.restart_strategy();
    if strategy != RestartStrategy::InPlaceRestart {
        return;
    }
    if !subject.gates.in_place_restart {
        // The requirements of the strategy do not matter while it is rejected.
        errors.invalid(&spec.child("failurePolicy.restartStrategy"), strategy, GATE);
        return;
    }
    if let Some(key) = inject_agent::misspelt(subject.jobset)
        && !subject.spec.replicated_jobs.iter().all(has_agent)
    {
        errors.forbidden(&Path::annotation(key), MISSPELT);
    }
    // If the annotation asks for an unknown agent, that is the error, and not each Pod without an agent.
    check_barrier(subject, spec, inject_agent::unknown_shape(subject.jobset).is_none(), errors);
    let replicated_jobs = spec.child("replicatedJobs");
    for (index, replicated_job) in subject.spec.replicated_jobs.iter().enumerate() {
        let path = replicated_jobs.index(index);
        let job = &replicated_job.template.spec;
        let path = path.child("template.spec");
        if job.backoff_limit != Some(MAX_BACKOFF_LIMIT) {
            errors.wrong(&path.child("backoffLimit"), job.backoff_limit, BACKOFF_LIMIT);
        }
        let replacement = job.pod_replacement_policy.as_deref();
        exactly(&path.child("podReplacementPolicy"), replacement, REPLACE_FAILED, POD_REPLACEMENT_POLICY, errors);
        let pod = job.template.spec.as_ref();
        let restart_policy = pod.and_then(|pod| pod.restart_policy.as_deref());
        exactly(&path.child("template.spec.restartPolicy"), restart_policy, "Never", RESTART_POLICY, errors);
    }
}

/// The part of [`check`] without which the barrier of the group never lifts.
pub(super) fn check_group(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    if subject.spec.restart_strategy() == RestartStrategy::InPlaceRestart {
        check_barrier(subject, spec, true, errors);
    }
}

/// Rejects what keeps the barrier from lifting: an order of replicatedJobs, Jobs without indexes, and, if `needs_agent`, Pods
/// without an agent.
fn check_barrier(subject: &Subject<'_>, spec: &Path<'_>, needs_agent: bool, errors: &mut Errors) {
    if is_in_order(subject.spec) {
        errors.invalid(&spec.child("startupPolicy.startupPolicyOrder"), StartupPolicyOrder::InOrder, IN_ORDER);
    }
    let replicated_jobs = spec.child("replicatedJobs");
    for (index, replicated_job) in subject.spec.replicated_jobs.iter().enumerate() {
        let path = replicated_jobs.index(index);
        if !replicated_job.depends_on.is_empty() {
            errors.forbidden(&path.child("dependsOn"), DEPENDS_ON);
        }
        let job = &replicated_job.template.spec;
        let path = path.child("template.spec");
        one_pod_for_each_index(job, &path, errors);
        if needs_agent && !has_agent(replicated_job) {
            agent(job, &path.child("template.spec"), errors);
        }
    }
}

fn exactly(path: &Path<'_>, found: Option<&str>, wanted: &str, required: &str, errors: &mut Errors) {
    if found != Some(wanted) {
        errors.wrong(path, found, required);
    }
}

/// A slot of the group is a completion index. Without indexes there are no slots. If an index starts only after another
/// has succeeded, the barrier never lifts.
fn one_pod_for_each_index(job: &JobTemplateSpec, path: &Path<'_>, errors: &mut Errors) {
    let mode = job.completion_mode.as_deref();
    exactly(&path.child("completionMode"), mode, "Indexed", COMPLETION_MODE, errors);
    let parallelism = job.parallelism.unwrap_or(1);
    if job.completions.unwrap_or(1) != parallelism {
        errors.wrong(&path.child("completions"), job.completions, COMPLETIONS);
    }
}

fn has_agent(replicated_job: &ReplicatedJob) -> bool {
    let pod = replicated_job.template.spec.template.spec.as_ref();
    pod.is_some_and(|pod| !Agent::all_of(pod).is_empty())
}

fn agent(job: &JobTemplateSpec, path: &Path<'_>, errors: &mut Errors) {
    let pod = job.template.spec.as_ref();
    let field = path.child("initContainers");
    let containers = pod.and_then(|pod| pod.init_containers.as_deref()).unwrap_or_default();
    let found: Vec<_> = containers.iter().map(|container| &container.name).collect();
    errors.wrong(&field, Some(found).filter(|found| !found.is_empty()), AGENT);
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{admission_errors, assert_one, in_place, jobset, read};
    use super::super::validate_create;
    use crate::gates::Gates;

    const JOB: &str = "/spec/replicatedJobs/1/template/spec";
    const INIT: &str = "/template/spec/initContainers";

    fn with(field: &str, value: Value) -> Value {
        in_place(&[(&format!("{JOB}{field}"), value)])
    }

    #[test]
    fn agent_among_other_init_containers_is_accepted() {
        let object = in_place(&[]);
        let agent = object.pointer(&format!("{JOB}{INIT}/0"));
        let object = with(INIT, json!([{ "name": "setup" }, agent, { "name": "log" }]));
        assert_eq!(admission_errors(&object), Vec::<String>::new());
    }

    #[rstest]
    #[case::no_backoff_limit("/backoffLimit", Value::Null, "backoffLimit: Required value: must be 2147483647")]
    #[case::no_replacement(
        "/podReplacementPolicy",
        Value::Null,
        r#"podReplacementPolicy: Required value: must be "Failed""#
    )]
    #[case::no_indexes_by_default(
        "/completionMode",
        Value::Null,
        r#"completionMode: Required value: must be "Indexed""#
    )]
    #[case::no_completions("/completions", Value::Null, "completions: Required value: must equal parallelism")]
    #[case::no_restart_policy(
        "/template/spec/restartPolicy",
        Value::Null,
        r#"template.spec.restartPolicy: Required value: must be "Never""#
    )]
    #[case::not_a_sidecar("/template/spec/initContainers/0", json!({ "name": "agent", "restartPolicy": "Never" }), r#"template.spec.initContainers: Invalid value: ["agent"]: must contain the agent"#)]
    fn in_place_jobset_without_requirement_is_rejected_by_field(
        #[case] field: &str,
        #[case] value: Value,
        #[case] expected: &str,
    ) {
        let errors = admission_errors(&with(field, value));
        assert_one(&errors, expected);
        assert!(errors[0].starts_with("spec.replicatedJobs[1].template.spec."), "{errors:?}");
    }

    #[test]
    fn in_place_jobset_with_gate_off_is_rejected() {
        let off = Gates { in_place_restart: false, ..Gates::default() };
        let errors = |object: &Value| validate_create(&read(object), off).to_string();
        let refused = errors(&with("/backoffLimit", json!(6)));
        assert!(refused.starts_with(r#"spec.failurePolicy.restartStrategy: Invalid value: "InPlaceRestart": "#));
        assert!(refused.contains("the feature gate InPlaceRestart is off") && !refused.contains("backoffLimit"));
        assert_eq!(errors(&jobset(&[])), "");
    }
}
