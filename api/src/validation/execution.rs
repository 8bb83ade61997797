//! Which stored JobSets the controller cannot run.
//!
//! Admission rejects more: it is strict with new and changed objects. A stored JobSet may have been admitted by another
//! webhook, by an older one or by none, and may already run. The controller runs everything that it can. A rule is in
//! this file if a violation makes the API server refuse the Jobs, or the controller wait forever. Errors that only the
//! API server finds are left to it, and the condition ChildRefused reports them.
//!
//! | rule | a stored violation is |
//! |---|---|
//! | names of replicatedJobs: DNS labels, unique; numbers: not negative | not run |
//! | more Jobs or Pods than one JobSet may have ([`crate::JobSetLimits`]), or than can be counted | run: nothing is created, resumed or resized |
//! | names of Jobs, or host names of Pods, of more than 63 characters | not run |
//! | `network.subdomain` that is no DNS label, with DNS host names | not run |
//! | network name of the coordinator that is too long for its label | not run |
//! | name of a volumeClaimPolicy's template that is no name of a volume | not run |
//! | `dependsOn` of itself, of a later or of an unknown replicatedJob | not run |
//! | success policy of which no target exists | not run |
//! | exclusive placement by affinity of Jobs without indexes | not run |
//! | in place: `startupPolicy: InOrder`, `dependsOn`, Jobs without indexes, `completions` other than `parallelism`, Pods without an agent | run: restarts by recreation |
//! | message patterns that do not compile, are too many, or take too much time or memory together | run: they match nothing |
//! | in place: `backoffLimit`, `podReplacementPolicy`, `restartPolicy` | run with these values |
//! | syntax of the JobSet's name and of `groupName` | run, or refused by the API server |
//! | coordinator: its replicatedJob, Job and Pod | run: label and annotation may name a Pod that does not exist |
//! | claims: their number, namespace, length, volumes of the same name, no mount | run: the Pod's own volume is kept |
//! | `dependsOn` twice, or with `InOrder` | run: both orders apply |
//! | other targets of policies; reasons of failures | run: unknown names match nothing |
//! | failure policy: negative `maxRestarts` | run as 0 |
//! | failure policy: `restartBackoff` out of bounds | run: a negative wait is 0, and no wait is longer than `maxSeconds` |
//! | additional restarts that are no number | run as 0 |
//! | a time for names to settle that is no duration | run: the flag of the controller applies |
//! | names of rules | run: the default name replaces a name that is no condition reason |
//! | more than 1024 Jobs that restart one by one | run: a Job beyond the limit restarts with its replicatedJob |
//! | `activeDeadlineSeconds` while its feature gate is off | run: it is not enforced |
//! | syntax of `managedBy` | left to another controller |
//! | rules that apply only to creation | run |

use super::rule::{Rule, apply};
use super::subject::Subject;
use super::{
    child_names, coordinator, depends_on, exclusive_placement, in_place, message_patterns, network, replicated_jobs,
    targets, volume_claims,
};
use crate::JobSet;
use crate::field::{Errors, Path};
use crate::gates::Gates;
use crate::message_pattern::MessagePatterns;

/// The rules without which the JobSet cannot run.
const RULES: [Rule; 8] = [
    replicated_jobs::check_jobs,
    child_names::check_lengths,
    network::check_pods,
    coordinator::check_label,
    volume_claims::check_names,
    depends_on::check_order,
    targets::check_success,
    exclusive_placement::check,
];

/// The errors for which the JobSet cannot run. Empty if it can run.
///
/// Feature gates do not count: a JobSet that was admitted while a gate was on still runs.
pub fn cannot_run(jobset: &JobSet) -> Errors {
    violations(jobset, &RULES)
}

/// The errors for which a JobSet with restartStrategy InPlaceRestart cannot restart in place: its barrier would never
/// lift. Empty if it can.
pub fn cannot_restart_in_place(jobset: &JobSet) -> Errors {
    violations(jobset, &[in_place::check_group])
}

/// The errors of message patterns of the failure policy, which are compiled. Such a pattern matches nothing.
pub fn cannot_match(jobset: &JobSet, patterns: &MessagePatterns) -> Errors {
    let mut errors = Errors::default();
    message_patterns::check_compiled(jobset.spec.failure_rules(), patterns, &Path::root("spec"), &mut errors);
    errors
}

fn violations(jobset: &JobSet, rules: &[Rule]) -> Errors {
    let mut errors = Errors::default();
    apply(rules, &Subject::new(jobset, Gates::default()), &mut errors);
    errors
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{admission_errors, assert_one, in_place, jobset, read};
    use super::*;

    const JOB: &str = "/spec/replicatedJobs/1/template/spec";

    fn all(errors: &Errors) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn depends_on(name: &str) -> Value {
        json!([{ "name": name, "status": "Ready" }])
    }

    #[rstest]
    #[case::name_of_group("/spec/replicatedJobs/1/name", json!("Workers"), "replicatedJobs[1].name: Invalid value")]
    #[case::same_name("/spec/replicatedJobs/1/name", json!("driver"), "replicatedJobs[1].name: Duplicate value")]
    #[case::negative("/spec/replicatedJobs/1/replicas", json!(-1), "replicas: Invalid value: -1")]
    #[case::long_names("/metadata/name", json!("a".repeat(60)), "characters of the 63 that Kubernetes allows")]
    #[case::subdomain("/spec/network", json!({ "subdomain": "a.b" }), "spec.network.subdomain: Invalid value")]
    #[case::coordinator(
        "/spec/coordinator",
        json!({ "replicatedJob": "a".repeat(60) }),
        "characters of the 63 that fit into a label"
    )]
    #[case::volume(
        "/spec/volumeClaimPolicies",
        json!([{ "templates": [{ "metadata": { "name": "a.b" }, "spec": {} }] }]),
        "templates[0].metadata.name: Invalid value"
    )]
    #[case::itself("/spec/replicatedJobs/1/dependsOn", depends_on("workers"), "cannot wait for itself")]
    #[case::unknown_name("/spec/replicatedJobs/1/dependsOn", depends_on("nobody"), "Not found: \"nobody\"")]
    #[case::success(
        "/spec/successPolicy/targetReplicatedJobs",
        json!(["nobody"]),
        "spec.successPolicy.targetReplicatedJobs[0]: Not found"
    )]
    fn stored_jobset_that_would_wait_forever_cannot_run(
        #[case] pointer: &str,
        #[case] value: Value,
        #[case] expected: &str,
    ) {
        let object = jobset(&[(pointer, value)]);
        let errors = all(&cannot_run(&read(&object)));
        assert!(!errors.is_empty() && errors.iter().all(|error| error.contains(expected)), "{errors:?}");
        assert_ne!(admission_errors(&object), Vec::<String>::new());
    }

    #[rstest]
    #[case::group("/spec/replicatedJobs/1/groupName", json!("1st"))]
    #[case::name("/metadata/name", json!("1train"))]
    #[case::subdomain_of_no_use("/spec/network", json!({ "subdomain": "a.b", "enableDNSHostnames": false }))]
    #[case::coordinator_that_does_not_exist("/spec/coordinator", json!({ "replicatedJob": "nobody", "jobIndex": 9 }))]
    #[case::claim_without_mount(
        "/spec/volumeClaimPolicies",
        json!([{ "templates": [{ "metadata": { "name": "data" }, "spec": {} }] }])
    )]
    #[case::dependency_twice("/spec/replicatedJobs/1/dependsOn", json!([depends_on("driver")[0], depends_on("driver")[0]]))]
    #[case::one_of_two_targets("/spec/successPolicy/targetReplicatedJobs", json!(["workers", "nobody"]))]
    #[case::target_of_a_rule("/spec/failurePolicy/rules/0/targetReplicatedJobs", json!(["nobody"]))]
    #[case::reason("/spec/failurePolicy/rules/0/onJobFailureReasons", json!(["Nothing"]))]
    #[case::name_of_a_rule("/spec/failurePolicy/rules/0/name", json!("a b"))]
    #[case::max_restarts("/spec/failurePolicy/maxRestarts", json!(-1))]
    #[case::manager("/spec/managedBy", json!("nobody"))]
    #[case::request("/metadata/annotations", json!({ "jobset.sigs.k8s.io/restart-request": "now" }))]
    #[case::pods("/spec/replicatedJobs/1/template/spec/parallelism", json!(i32::MAX))]
    #[case::jobs("/spec/replicatedJobs/0/replicas", json!(i32::MAX))]
    fn stored_jobset_that_admission_rejects_can_run(#[case] pointer: &str, #[case] value: Value) {
        let object = jobset(&[(pointer, value)]);
        assert_eq!(all(&cannot_run(&read(&object))), Vec::<String>::new());
        assert_ne!(admission_errors(&object), Vec::<String>::new());
    }

    #[test]
    fn coordinator_without_index_can_run() {
        let coordinator = ("/spec/coordinator", json!({ "replicatedJob": "workers" }));
        for (field, value) in [("completionMode", json!("NonIndexed")), ("completions", Value::Null)] {
            let object = jobset(&[coordinator.clone(), (&format!("{JOB}/{field}"), value)]);
            assert_eq!(all(&cannot_run(&read(&object))), Vec::<String>::new());
            let errors = admission_errors(&object);
            assert!(errors[0].starts_with("spec.coordinator.podIndex: Invalid value: 0"), "{errors:?}");
        }
    }

    #[rstest]
    #[case::restart_policy("template/spec/restartPolicy", json!("OnFailure"))]
    #[case::backoff_limit("backoffLimit", json!(6))]
    #[case::replacement("podReplacementPolicy", json!("TerminatingOrFailed"))]
    fn stored_in_place_jobset_that_admission_rejects_restarts_in_place(#[case] field: &str, #[case] value: Value) {
        let object = in_place(&[(&format!("{JOB}/{field}"), value)]);
        let stored = read(&object);
        assert_eq!(all(&cannot_run(&stored)), Vec::<String>::new());
        assert_eq!(all(&cannot_restart_in_place(&stored)), Vec::<String>::new());
        assert_ne!(admission_errors(&object), Vec::<String>::new());
    }

    #[rstest]
    #[case::in_order("/spec/startupPolicy", json!({ "startupPolicyOrder": "InOrder" }), "must be AnyOrder")]
    #[case::depends_on("/spec/replicatedJobs/1/dependsOn", depends_on("driver"), "dependsOn: Forbidden")]
    #[case::no_indexes(&format!("{JOB}/completionMode"), json!("NonIndexed"), "completionMode: Invalid value")]
    #[case::more_completions(&format!("{JOB}/completions"), json!(8), "completions: Invalid value: 8")]
    #[case::no_agent(&format!("{JOB}/template/spec/initContainers"), Value::Null, "must contain the agent")]
    fn stored_in_place_jobset_without_liftable_barrier_runs_by_recreation(
        #[case] pointer: &str,
        #[case] value: Value,
        #[case] expected: &str,
    ) {
        let stored = read(&in_place(&[(pointer, value)]));
        assert_eq!(all(&cannot_run(&stored)), Vec::<String>::new());
        assert_one(&all(&cannot_restart_in_place(&stored)), expected);
    }

    #[test]
    fn stored_pattern_not_compiling_is_listed_and_jobset_runs() {
        let stored = read(&jobset(&[("/spec/failurePolicy/rules/0/onJobFailureMessagePatterns", json!(["a", "a("]))]));
        assert_eq!(all(&cannot_run(&stored)), Vec::<String>::new());
        let patterns = MessagePatterns::compile(stored.spec.failure_rules());
        assert_one(&all(&cannot_match(&stored, &patterns)), "onJobFailureMessagePatterns[1]: Invalid value: \"a(\"");
    }
}
