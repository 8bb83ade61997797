//! What of a stored JobSet cannot be carried out.
//!
//! Admission refuses more than that: it is strict with what is new or changed. A stored JobSet may have been admitted by
//! another webhook, by an older one or by none, and may run already; the controller carries out all that it can. One
//! criterion decides: a rule is here if, with what breaks it, Kubernetes takes no Job of the JobSet, or its controller
//! would wait for ever. What Kubernetes alone finds wrong is left to Kubernetes: the condition ChildRefused says it.
//!
//! | rule | stored, it is |
//! |---|---|
//! | names of replicatedJobs: DNS labels, unique; numbers: not negative, countable | not carried out |
//! | names of Jobs, or host names of Pods, of more than 63 characters | not carried out |
//! | `network.subdomain` that no Pod can have, with DNS host names | not carried out |
//! | network name of the coordinator that does not fit into its label | not carried out |
//! | name of a volumeClaimPolicy's template that no volume can have | not carried out |
//! | `dependsOn` of itself, of a later replicatedJob or of none | not carried out |
//! | success policy none of whose targets exists | not carried out |
//! | exclusive placement by affinity of Jobs without indexes | not carried out |
//! | in place: `startupPolicy: InOrder`, `dependsOn`, Jobs without indexes, `completions` other than `parallelism`, Pods without an agent | restarted by recreation |
//! | message patterns that do not compile, or too many | matching nothing |
//! | in place: `backoffLimit`, `podReplacementPolicy`, `restartPolicy` | carried out as it says |
//! | form of the JobSet's name and of `groupName` | carried out, or refused by Kubernetes |
//! | coordinator: its replicatedJob, Job and Pod | carried out: label and annotation name what may not exist |
//! | claims: their number, namespace, length, volumes of the same name, no mount | carried out: the Pod's own volume stays |
//! | `dependsOn` twice, or beside `InOrder` | carried out: both orders are kept |
//! | other targets of policies; reasons of failures | carried out: what does not exist matches nothing |
//! | failure policy: negative `maxRestarts` | carried out as 0 |
//! | names of rules | carried out: one that is no reason of a condition is replaced by the default name |
//! | more than 1024 Jobs that restart one by one | carried out: those beyond restart with their replicatedJob |
//! | form of `managedBy` | another controller's |
//! | rules that are only for creation | carried out |

use super::rule::{Rule, apply};
use super::subject::Subject;
use super::{
    child_names, coordinator, depends_on, exclusive_placement, in_place, message_patterns, network, replicated_jobs,
    targets, volume_claims,
};
use crate::JobSet;
use crate::field::Errors;
use crate::gates::Gates;

/// The rules without which nothing can be carried out.
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

/// All for which the JobSet cannot be carried out.
///
/// A feature that is switched off makes nothing invalid that was admitted while it was on.
pub fn cannot_run(jobset: &JobSet) -> Errors {
    broken(jobset, &RULES)
}

/// All for which the workers of a JobSet with restartStrategy InPlaceRestart cannot restart in place: the group would
/// never get over its barrier.
pub fn cannot_restart_in_place(jobset: &JobSet) -> Errors {
    broken(jobset, &[in_place::check_group])
}

/// The message patterns of the failure policy that match nothing.
///
/// Compiles them, which takes some ten milliseconds for the largest: a caller that asks again and again does well to
/// remember the answer with `metadata.generation`.
pub fn cannot_match(jobset: &JobSet) -> Errors {
    broken(jobset, &[message_patterns::check])
}

fn broken(jobset: &JobSet, rules: &[Rule]) -> Errors {
    let mut errors = Errors::default();
    apply(rules, &Subject::new(jobset, Gates::default()), &mut errors);
    errors
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{admissions, assert_one, in_place, jobset, read};
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
    #[case::nobody("/spec/replicatedJobs/1/dependsOn", depends_on("nobody"), "Not found: \"nobody\"")]
    #[case::success(
        "/spec/successPolicy/targetReplicatedJobs",
        json!(["nobody"]),
        "spec.successPolicy.targetReplicatedJobs[0]: Not found"
    )]
    fn stored_jobset_that_would_wait_for_ever_cannot_run(
        #[case] pointer: &str,
        #[case] value: Value,
        #[case] expected: &str,
    ) {
        let object = jobset(&[(pointer, value)]);
        let errors = all(&cannot_run(&read(&object)));
        assert!(!errors.is_empty() && errors.iter().all(|error| error.contains(expected)), "{errors:?}");
        assert_ne!(admissions(&object), Vec::<String>::new());
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
    fn stored_jobset_that_admission_refuses_can_run(#[case] pointer: &str, #[case] value: Value) {
        let object = jobset(&[(pointer, value)]);
        assert_eq!(all(&cannot_run(&read(&object))), Vec::<String>::new());
        assert_ne!(admissions(&object), Vec::<String>::new());
    }

    #[test]
    fn coordinator_without_index_can_run() {
        let coordinator = ("/spec/coordinator", json!({ "replicatedJob": "workers" }));
        for (field, value) in [("completionMode", json!("NonIndexed")), ("completions", Value::Null)] {
            let object = jobset(&[coordinator.clone(), (&format!("{JOB}/{field}"), value)]);
            assert_eq!(all(&cannot_run(&read(&object))), Vec::<String>::new());
            assert_one(&admissions(&object), "spec.coordinator.podIndex: Invalid value: 0");
        }
    }

    #[rstest]
    #[case::restart_policy("template/spec/restartPolicy", json!("OnFailure"))]
    #[case::backoff_limit("backoffLimit", json!(6))]
    #[case::replacement("podReplacementPolicy", json!("TerminatingOrFailed"))]
    fn stored_jobset_in_place_that_admission_refuses_restarts_in_place(#[case] field: &str, #[case] value: Value) {
        let object = in_place(&[(&format!("{JOB}/{field}"), value)]);
        let stored = read(&object);
        assert_eq!(all(&cannot_run(&stored)), Vec::<String>::new());
        assert_eq!(all(&cannot_restart_in_place(&stored)), Vec::<String>::new());
        assert_ne!(admissions(&object), Vec::<String>::new());
    }

    #[rstest]
    #[case::in_order("/spec/startupPolicy", json!({ "startupPolicyOrder": "InOrder" }), "must be AnyOrder")]
    #[case::depends_on("/spec/replicatedJobs/1/dependsOn", depends_on("driver"), "dependsOn: Forbidden")]
    #[case::no_indexes(&format!("{JOB}/completionMode"), json!("NonIndexed"), "completionMode: Invalid value")]
    #[case::more_completions(&format!("{JOB}/completions"), json!(8), "completions: Invalid value: 8")]
    #[case::no_agent(&format!("{JOB}/template/spec/initContainers"), Value::Null, "must contain the agent")]
    fn stored_jobset_that_cannot_get_over_its_barrier_runs_and_does_not_restart_in_place(
        #[case] pointer: &str,
        #[case] value: Value,
        #[case] expected: &str,
    ) {
        let stored = read(&in_place(&[(pointer, value)]));
        assert_eq!(all(&cannot_run(&stored)), Vec::<String>::new());
        assert_one(&all(&cannot_restart_in_place(&stored)), expected);
    }

    #[test]
    fn stored_pattern_that_does_not_compile_matches_nothing_and_the_jobset_can_run() {
        let stored = read(&jobset(&[("/spec/failurePolicy/rules/0/onJobFailureMessagePatterns", json!(["a", "a("]))]));
        assert_eq!(all(&cannot_run(&stored)), Vec::<String>::new());
        assert_one(&all(&cannot_match(&stored)), "onJobFailureMessagePatterns[1]: Invalid value: \"a(\"");
    }
}
