//! Explanations, at least one for each kind of cause.

use k8s_openapi::api::events::v1::Event;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::testing::{condition, group, held, job, jobset, now, plain, pod, ready, running, unschedulable, view};

/// Facts of a JobSet with this status. The patch is merged into the JobSet.
fn facts(status: Value, patch: &Value) -> Facts {
    let lease = ControllerLease {
        namespace: "jobset-system".to_owned(),
        holder: Some("a".to_owned()),
        renewed: Some(now()),
        seconds: 15,
    };
    Facts {
        jobset: jobset(status, patch),
        leases: Readable::Known(vec![lease]),
        admission: Readable::Known(true),
        now: now(),
        ..Facts::default()
    }
}

fn with_condition(type_: &str, reason: &str, message: &str) -> Facts {
    facts(json!({"conditions": [condition(type_, true, reason, message)]}), &Value::Null)
}

fn text(facts: &Facts) -> String {
    plain(&explain(facts), &view())
}

fn reasons(facts: &Facts) -> Vec<&'static str> {
    explain(facts).findings.iter().map(|finding| finding.reason).collect()
}

#[rstest]
#[case::failed("Failed", "ReachedMaxRestarts", "Failed")]
#[case::completed("Completed", "AllJobsCompleted", "Completed")]
#[case::invalid("Invalid", "InvalidSpecification", "Invalid")]
#[case::refused("ChildRefused", "Refused", "ChildRefused")]
#[case::unsupported("InPlaceUnsupported", "InPlaceUnsupported", "InPlaceUnsupported")]
#[case::blocked("BarrierBlocked", "FailsBeforeBarrier", "BarrierBlocked")]
fn condition_of_controller_is_first_finding(#[case] type_: &str, #[case] reason: &str, #[case] expected: &str) {
    let facts = with_condition(type_, reason, "as the controller says");
    assert_eq!(reasons(&facts)[0], expected);
    assert!(text(&facts).contains("as the controller says"), "{}", text(&facts));
}

#[rstest]
#[case::max_restarts("ReachedMaxRestarts", "the causes in `kubectl jobset restarts train -n ml`")]
#[case::worker_not_started("WorkerNotStarted", "the init containers or the agent of the named Pod")]
#[case::no_policy("FailedJobs", "With spec.failurePolicy it restarts instead")]
fn failed_jobset_advice_follows_reason(#[case] reason: &str, #[case] advice: &str) {
    let text = text(&with_condition("Failed", reason, "m")).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(advice), "{text}");
}

#[test]
fn jobset_without_agent_is_not_reported_as_unsupported_cluster() {
    let facts = with_condition("InPlaceUnsupported", "CannotRestartInPlace", "as the controller says");
    let found = reasons(&facts);
    assert!(found.contains(&"CannotRestartInPlace") && !found.contains(&"InPlaceUnsupported"), "{found:?}");
}

#[rstest]
#[case::suspended(json!({"spec": {"suspend": true}}), "Suspended", "kubectl patch jobset train")]
#[case::queued(json!({"spec": {"suspend": true}, "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}}), "Suspended", "Kueue's queue gpus")]
#[case::elsewhere(json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}), "ManagedElsewhere", "another cluster")]
#[case::deleting(json!({"metadata": {"deletionTimestamp": "2026-11-22T09:59:00Z", "finalizers": ["a/b"]}}), "Deleting", "finalizers: a/b")]
fn jobset_not_to_run_has_one_finding(#[case] patch: Value, #[case] reason: &str, #[case] words: &str) {
    let facts = facts(Value::Null, &patch);
    assert_eq!(reasons(&facts), [reason]);
    assert!(text(&facts).contains(words), "{}", text(&facts));
}

/// The commands in a text: from `kubectl` to a backquote, semicolon, line end or parenthesis.
fn commands(text: &str) -> Vec<&str> {
    let ends = |rest: &str| ["`", ";", "\n", " ("].iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
    text.match_indices("kubectl ").map(|(start, _)| &text[start..][..ends(&text[start..])]).collect()
}

/// Whether a command has the JobSet's namespace, or needs none: all namespaces, a system namespace, or a file.
fn looks_at_the_right_namespace(command: &str) -> bool {
    ["-n ml", "-A", "-n kube-system", "-n jobset-system", "-f FILE"].iter().any(|place| command.contains(place))
}

#[rstest]
#[case::suspended(facts(Value::Null, &json!({"spec": {"suspend": true}})), 1)]
#[case::queued(
    facts(Value::Null, &json!({"spec": {"suspend": true}, "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}})),
    1
)]
#[case::elsewhere(facts(Value::Null, &json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}})), 1)]
#[case::out_of_restarts(with_condition("Failed", "ReachedMaxRestarts", "m"), 1)]
#[case::invalid(with_condition("Invalid", "InvalidSpecification", "m"), 1)]
#[case::blocked(with_condition("BarrierBlocked", "FailsBeforeBarrier", "m"), 2)]
#[case::budget(facts(json!({"replicatedJobsStatus": ready(1, 2), "restartsCountTowardsMax": 5}), &Value::Null), 1)]
#[case::at_the_barrier(late_for_many_reasons(), 5)]
#[case::lifted_too_late(all_have_reported(), 1)]
#[case::crash(fails("worker"), 2)]
#[case::no_controller(Facts { leases: Readable::Known(vec![]), ..facts(Value::Null, &Value::Null) }, 3)]
#[case::quota(refused("exceeded quota: gpus"), 2)]
#[case::no_jobs(facts(json!({}), &empty()), 1)]
fn every_command_names_namespace(#[case] facts: Facts, #[case] count: usize) {
    let text = text(&facts);
    let commands = commands(&text);
    assert_eq!(commands.len(), count, "{commands:#?}\n{text}");
    for command in commands {
        assert!(looks_at_the_right_namespace(command), "{command}");
    }
}

/// A patch that leaves no replicatedJob a Job.
fn empty() -> Value {
    json!({"spec": {"replicatedJobs": [group("driver", 0, 1), group("workers", 0, 2)]}})
}

/// The only Pod has reported the epoch and restarts.
fn all_have_reported() -> Facts {
    let patch = json!({"spec": {"replicatedJobs": [group("workers", 1, 1)]}});
    let mut facts = facts(json!({"syncedEpoch": 1, "deprecatedEpoch": 1}), &patch);
    facts.jobs = vec![job("workers", 0, 1, 0)];
    facts.pods = vec![pod("train-workers-0", 0, Some("1"), &running(), &Value::Null)];
    facts
}

/// A container of the only Pod is in a crash loop.
fn fails(container: &str) -> Facts {
    let mut facts = facts(json!({}), &json!({"spec": {"replicatedJobs": [group("workers", 1, 1)]}}));
    let status = json!({"phase": "Running", "containerStatuses": [{"name": container,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]});
    facts.jobs = vec![job("workers", 0, 1, 0)];
    facts.pods = vec![pod("train-workers-0", 0, None, &status, &Value::Null)];
    facts
}

/// The API server refused the Pod of the only Job.
fn refused(note: &str) -> Facts {
    let mut facts = facts(json!({}), &json!({"spec": {"replicatedJobs": [group("workers", 1, 1)]}}));
    facts.jobs = vec![job("workers", 0, 1, 0)];
    facts.refusals = vec![refusal("train-workers-0", note)];
    facts
}

#[rstest]
#[case::all_of_them(empty(), &["has no Jobs to run", "driver, workers have 0 replicas"])]
#[case::the_only_one(json!({"spec": {"replicatedJobs": [group("workers", 0, 2)]}}), &["workers has 0 replicas"])]
fn jobset_without_replicas_reports_no_jobs(#[case] patch: Value, #[case] words: &[&str]) {
    let facts = facts(json!({"replicatedJobsStatus": []}), &patch);
    assert_eq!(reasons(&facts), ["NoJobs"]);
    assert!(!explain(&facts).runs);
    let text = text(&facts);
    assert!(words.iter().all(|word| text.contains(word)) && !text.contains("0 of 0"), "{text}");
}

#[test]
fn message_of_several_lines_is_indented() {
    let facts = with_condition("ChildRefused", "Refused", "two things:\n\n* a quota\n  * a policy\n");
    let text = text(&facts);
    assert!(text.contains("\n   two things:\n   * a quota\n     * a policy\n   -> "), "{text}");
}

#[test]
fn running_jobset_without_restarts_left_has_remark() {
    let status = json!({"replicatedJobsStatus": ready(1, 2), "restartsCountTowardsMax": 5, "groupRestarts": 5});
    let facts = facts(status, &Value::Null);
    assert!(explain(&facts).runs);
    insta::assert_snapshot!(text(&facts));
}

/// Pods with every problem that keeps them from the barrier.
fn late_for_many_reasons() -> Facts {
    let patch = json!({"spec": {"replicatedJobs": [group("workers", 1, 9)]}});
    let mut facts = facts(
        json!({"syncedEpoch": 2, "deprecatedEpoch": 2, "groupRestarts": 2, "restartsCountTowardsMax": 2,
        "conditions": [condition("RestartingJobSet", true, "InPlaceRestart", "in place, from epoch 2 to 3: Pod a failed")]}),
        &patch,
    );
    let worker = |index, epoch, status: Value| pod("train-workers-0", index, epoch, &status, &Value::Null);
    let free =
        |index, status: Value| pod("train-workers-0", index, None, &status, &json!({"spec": {"nodeName": null}}));
    let init = |state: Value| {
        pod(
            "train-workers-0",
            5,
            None,
            &json!({"phase": "Pending", "initContainerStatuses": [{"name": "fetch", "state": state,
            "lastState": {"terminated": {"exitCode": 7, "reason": "Error", "message": "no such\nbucket"}}}]}),
            &json!({"spec": {"initContainers": [{"name": "fetch"}]}}),
        )
    };
    facts.jobs = vec![job("workers", 0, 9, 0)];
    facts.pods = vec![
        worker(0, Some("3"), held()),
        worker(1, Some("2"), running()),
        free(2, unschedulable("0/9 nodes are available: 9 Insufficient nvidia.com/gpu.")),
        free(3, unschedulable("0/9 nodes are available: 9 Insufficient nvidia.com/gpu.")),
        worker(
            4,
            None,
            json!({"phase": "Pending", "containerStatuses": [{"name": "worker",
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"x:1\""}}}]}),
        ),
        init(json!({"waiting": {"reason": "CrashLoopBackOff"}})),
        worker(6, None, held()),
        free(7, json!({"phase": "Pending"})),
    ];
    facts
}

#[test]
fn closed_barrier_reports_problems_of_pods() {
    insta::assert_snapshot!(text(&late_for_many_reasons()));
}

#[rstest]
#[case::waiting("ContainerCreating", "Starting")]
#[case::config("CreateContainerConfigError", "ContainerConfig")]
#[case::image("ErrImagePull", "ImagePull")]
fn waiting_container_reports_cause(#[case] waiting: &str, #[case] reason: &str) {
    let recreate = json!({"spec": {"failurePolicy": {"restartStrategy": "Recreate"}}});
    let mut facts = facts(json!({}), &recreate);
    let status = json!({"phase": "Pending", "containerStatuses": [{"name": "worker", "state": {"waiting": {"reason": waiting, "message": "m"}}}]});
    facts.pods = vec![pod("train-workers-0", 0, None, &status, &Value::Null)];
    assert_eq!(reasons(&facts), [reason]);
}

#[rstest]
#[case::in_order(json!({"spec": {"startupPolicy": {"startupPolicyOrder": "InOrder"}}}), "StartupOrder", "workers waits for replicatedJob driver: 0 of 1")]
#[case::depends(json!({"spec": {"replicatedJobs": [group("driver", 1, 1), {"name": "workers", "replicas": 2,
    "dependsOn": [{"name": "driver", "status": "Complete"}], "template": {"spec": {}}}]}}), "DependsOn", "workers waits for driver to be complete: 0 of 1")]
fn replicated_job_waits_for_other_reports_name(#[case] mut patch: Value, #[case] reason: &str, #[case] words: &str) {
    patch["spec"]["failurePolicy"] = json!({"restartStrategy": "Recreate"});
    let facts = facts(json!({"replicatedJobsStatus": ready(0, 0)}), &patch);
    assert_eq!(reasons(&facts), [reason]);
    assert!(text(&facts).contains(words), "{}", text(&facts));
}

fn refusal(job: &str, note: &str) -> Event {
    serde_json::from_value(json!({"metadata": {}, "reason": "FailedCreate", "note": note, "eventTime": null,
        "deprecatedLastTimestamp": "2026-11-22T09:59:00Z", "regarding": {"kind": "Job", "name": job}}))
    .unwrap()
}

#[rstest]
#[case::leader(
    "admission webhook \"mpod.kb.io\" denied the request: waits for the leader of Job train-workers-0 ...",
    "LeaderNotPlaced"
)]
#[case::webhook("Internal error occurred: failed calling webhook \"mpod.kb.io\"", "WebhookUnreachable")]
#[case::quota("pods \"x\" is forbidden: exceeded quota: gpus", "QuotaExceeded")]
#[case::policy("pods \"x\" is forbidden: violates PodSecurity", "PodsRefused")]
fn refused_pods_report_cause(#[case] note: &str, #[case] reason: &str) {
    let recreate = json!({"spec": {"failurePolicy": {"restartStrategy": "Recreate"}}});
    let mut facts = facts(json!({}), &recreate);
    facts.jobs = vec![job("driver", 0, 1, 0), job("workers", 0, 2, 0), job("workers", 1, 2, 0)];
    let note = format!("Error creating: {note}");
    facts.refusals = ["train-workers-0", "train-workers-1", "another"].map(|job| refusal(job, &note)).to_vec();
    assert_eq!(reasons(&facts), [reason]);
    assert!(text(&facts).contains("2 Jobs (train-workers-0, train-workers-1)"), "{}", text(&facts));
    // The API server has refused the Pods once, and they exist now.
    facts.pods = (0..2)
        .flat_map(|job| {
            (0..2).map(move |index| pod(&format!("train-workers-{job}"), index, None, &running(), &Value::Null))
        })
        .collect();
    assert_eq!(reasons(&facts), Vec::<&str>::new());
}

#[test]
fn unschedulable_leader_of_exclusive_placement_is_reported() {
    let mut facts = facts(json!({}), &json!({"spec": {"failurePolicy": {"restartStrategy": "Recreate"}}}));
    let leads = json!({"spec": {"nodeName": null}, "metadata": {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}}});
    facts.pods = vec![pod("train-workers-0", 0, None, &unschedulable("0/4 nodes are available"), &leads)];
    assert_eq!(reasons(&facts), ["LeaderUnschedulable"]);
    assert!(text(&facts).contains("leads Job train-workers-0"), "{}", text(&facts));
}

#[rstest]
#[case::stale(Readable::Known(vec![ControllerLease { namespace: "x".to_owned(), holder: Some("a".to_owned()), renewed: "2026-11-22T09:50:00Z".parse().ok(), seconds: 15 }]), json!({}), true)]
#[case::given_back(Readable::Known(vec![ControllerLease { namespace: "x".to_owned(), holder: Some(String::new()), renewed: Some(now()), seconds: 1 }]), json!({}), true)]
#[case::none_and_no_status(Readable::Known(vec![]), Value::Null, true)]
#[case::none_but_a_status(Readable::Known(vec![]), json!({}), false)]
#[case::nobody_may_say_and_no_status(Readable::Unknown, Value::Null, true)]
#[case::nobody_may_say(Readable::Unknown, json!({}), false)]
fn controller_not_running_is_reported(
    #[case] leases: Readable<Vec<ControllerLease>>,
    #[case] status: Value,
    #[case] missed: bool,
) {
    let facts = Facts { leases, ..facts(status, &json!({"spec": {"failurePolicy": {"restartStrategy": "Recreate"}}})) };
    assert_eq!(reasons(&facts) == ["NoController"], missed, "{}", text(&facts));
}

#[test]
fn admission_missing_is_reported_for_jobset_that_needs_it() {
    let asks = json!({"metadata": {"annotations": {"jobset.sigs.k8s.io/inject-agent": "Sidecar"}}});
    let facts = Facts { admission: Readable::Known(false), ..facts(json!({}), &asks) };
    assert!(
        text(&facts).contains("The JobSet asks for an agent, and no webhook injects it into its Pods."),
        "{}",
        text(&facts)
    );
}
