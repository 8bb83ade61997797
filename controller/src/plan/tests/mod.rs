//! Whole passes: what the rules do together.

mod world;

use jobset_api::{JobSet, conditions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Action, Plan};
use crate::store::{Controller, Finished, JobView};
use world::World;

/// A JobSet `train` of two Jobs, with this specification and status merged in.
fn jobset(spec: &Value, status: &Value) -> JobSet {
    let mut whole = json!({"replicatedJobs": [
        {"name": "w", "replicas": 2, "template": {"spec": {}}}, {"name": "x", "replicas": 0, "template": {"spec": {}}}]});
    if let (Value::Object(whole), Value::Object(spec)) = (&mut whole, spec.clone()) {
        whole.extend(spec);
    }
    serde_json::from_value(json!({
        "metadata": {"name": "train", "namespace": "ml", "uid": "u"}, "spec": whole, "status": status,
    }))
    .unwrap()
}

fn observed(jobset: JobSet, jobs: impl IntoIterator<Item = (&'static str, JobView)>) -> World {
    jobs.into_iter().fold(World::new(jobset), |world, (name, job)| world.job(name, job))
}

fn job(attempt: i32, finished: Option<Finished>) -> JobView {
    JobView {
        replicated_job: "w".to_owned(),
        attempt: Some(attempt),
        parallelism: 1,
        pods: 1,
        finished,
        ..JobView::default()
    }
}

fn failed(second: i64, reason: &str, message: &str) -> Finished {
    let at = Timestamp::from_second(second).unwrap();
    Finished::Failed { reason: reason.to_owned(), message: message.to_owned(), at }
}

fn at(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

fn pass(world: &World) -> Plan {
    world.plan()
}

/// The plan in short: names of Jobs created (+) and deleted (-).
fn jobs_of(plan: &Plan) -> Vec<String> {
    let short = |action: &Action| match action {
        Action::CreateJob(job) => Some(format!("+{}", job.metadata.name.clone().unwrap_or_default())),
        Action::DeleteJob { name, .. } => Some(format!("-{name}")),
        _ => None,
    };
    plan.actions.iter().filter_map(short).collect()
}

fn reasons(plan: &Plan) -> Vec<&str> {
    plan.notes.iter().map(|note| note.reason).collect()
}

/// `ready/succeeded/failed/active/suspended` of the only replicatedJob.
#[rstest]
#[case::pending(JobView { active: 1, ..job(0, None) }, "0/0/0/1/0")]
#[case::ready(JobView { active: 1, ready: 1, ..job(0, None) }, "1/0/0/1/0")]
#[case::a_pod_of_two_is_not_enough(JobView { active: 2, ready: 1, pods: 2, ..job(0, None) }, "0/0/0/1/0")]
#[case::ready_and_succeeded_pods_together(JobView { active: 1, ready: 1, succeeded: 1, pods: 2, ..job(0, None) }, "1/0/0/1/0")]
#[case::suspended(JobView { suspended: true, ..job(0, None) }, "0/0/0/0/1")]
#[case::succeeded(job(0, Some(Finished::Completed)), "0/1/0/0/0")]
#[case::failed(job(0, Some(failed(1, "A", ""))), "0/0/1/0/0")]
#[case::being_deleted(JobView { deleting: true, active: 1, ..job(0, None) }, "0/0/0/0/0")]
fn a_job_is_counted_in_one_bucket(#[case] only: JobView, #[case] wanted: &str) {
    let plan = pass(&observed(jobset(&json!({}), &json!(null)), [("train-w-0", only)]));
    let counted = &plan.status.replicated_jobs_status[0];
    let jobset_api::ReplicatedJobStatus { ready, succeeded, failed, active, suspended, .. } = counted;
    assert_eq!(format!("{ready}/{succeeded}/{failed}/{active}/{suspended}"), wanted);
}

#[test]
fn a_new_jobset_gets_its_service_and_its_jobs() {
    let plan = pass(&World::without_service(jobset(&json!({}), &json!(null))));
    assert!(matches!(plan.actions[0], Action::CreateService(_)), "DNS names come before the Pods that use them");
    assert_eq!(jobs_of(&plan), ["+train-w-0", "+train-w-1"]);
}

#[test]
fn a_second_pass_over_what_the_first_made_does_nothing() {
    let seen = observed(jobset(&json!({}), &json!(null)), [("train-w-0", job(0, None)), ("train-w-1", job(0, None))]);
    let first = pass(&seen);
    let second = pass(&seen.with_status(first.status.clone()));
    assert_eq!(second, Plan { status: first.status, ..Plan::default() });
}

#[test]
fn a_restart_is_counted_first_and_carried_out_by_the_pass_that_reads_the_count() {
    let spec = json!({"failurePolicy": {"maxRestarts": 1}});
    let jobs = [("train-w-0", job(0, Some(failed(1, "BackoffLimitExceeded", "")))), ("train-w-1", job(0, None))];
    let counted = pass(&observed(jobset(&spec, &json!(null)), jobs.clone()));
    assert_eq!((counted.status.restarts, counted.status.restarts_count_towards_max), (1, 1));
    assert_eq!(counted.actions, [], "nothing is deleted before the count is stored");

    let stored = serde_json::to_value(&counted.status).unwrap();
    let plan = pass(&observed(jobset(&spec, &stored), jobs));
    assert_eq!(jobs_of(&plan), ["-train-w-0", "-train-w-1"]);
    assert_eq!(plan.status.restarts, 1, "once");

    let deleting = JobView { deleting: true, ..job(0, None) };
    let plan = pass(&observed(jobset(&spec, &stored), [("train-w-1", deleting.clone())]));
    assert_eq!(jobs_of(&plan), ["+train-w-0"], "each Job comes back as soon as its previous iteration is gone");

    let blocking = json!({"failurePolicy": {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"}});
    let plan = pass(&observed(jobset(&blocking, &stored), [("train-w-1", deleting)]));
    assert_eq!(jobs_of(&plan), [""; 0], "none before all are gone");
}

#[rstest]
#[case::no_policy(json!(null), "Failed", conditions::FAILED_JOBS, 0)]
#[case::no_restart_left(json!({"maxRestarts": 0}), "Failed", conditions::REACHED_MAX_RESTARTS, 0)]
#[case::by_reason(json!({"maxRestarts": 9, "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}]}),
    "Failed", conditions::FAIL_JOB_SET_ACTION, 0)]
#[case::other_reason(json!({"maxRestarts": 9, "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["FailedIndexes"]}]}), "", "", 1)]
#[case::other_target(json!({"maxRestarts": 9, "rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["x"]}]}), "", "", 1)]
#[case::by_message(json!({"maxRestarts": 9, "rules": [{"action": "FailJobSet", "onJobFailureMessagePatterns": ["^late"]}]}),
    "Failed", conditions::FAIL_JOB_SET_ACTION, 0)]
#[case::uncounted(json!({"maxRestarts": 0, "rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]}), "", "", 1)]
// The first rule that any failed Job matches: the later Job's, although the earlier one matches the second rule.
#[case::first_rule_before_first_job(
    json!({"maxRestarts": 9, "rules": [
        {"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}, {"action": "RestartJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]}]}),
    "Failed", conditions::FAIL_JOB_SET_ACTION, 0)]
fn the_failure_policy_decides(
    #[case] policy: Value,
    #[case] terminal_state: &str,
    #[case] reason: &str,
    #[case] restarts: i32,
) {
    let spec = if policy.is_null() { json!({}) } else { json!({"failurePolicy": policy}) };
    let jobs = [
        ("train-w-0", job(0, Some(failed(1, "BackoffLimitExceeded", "early")))),
        ("train-w-1", job(0, Some(failed(2, "DeadlineExceeded", "late")))),
    ];
    let plan = pass(&observed(jobset(&spec, &json!(null)), jobs));
    assert_eq!(plan.status.terminal_state, terminal_state);
    assert_eq!(conditions::terminal(&plan.status.conditions).map_or("", |condition| &condition.reason), reason);
    assert_eq!((plan.status.restarts, plan.status.group_restarts), (restarts, restarts));
}

#[rstest]
#[case::the_earlier(2, 1, "train-w-1")]
#[case::a_tie_by_name(1, 1, "train-w-0")]
fn the_failure_that_came_first_is_named(#[case] first: i64, #[case] second: i64, #[case] named: &str) {
    let spec = json!({"failurePolicy": {"rules": [{"name": "stop", "action": "FailJobSet"}]}});
    let jobs =
        [("train-w-0", job(0, Some(failed(first, "A", "x")))), ("train-w-1", job(0, Some(failed(second, "A", "x"))))];
    let plan = pass(&observed(jobset(&spec, &json!(null)), jobs));
    assert_eq!(plan.notes[0].message, format!("Job {named} failed (A: x); rule stop"));
}

#[test]
fn a_finished_jobset_deletes_what_still_runs_and_keeps_what_has_ended() {
    let status = json!({"conditions": [{
        "type": "Failed", "status": "True", "reason": "x", "message": "", "lastTransitionTime": at(1)}]});
    let jobs = [("train-w-0", job(0, Some(Finished::Completed))), ("train-w-1", job(0, None))];
    assert_eq!(jobs_of(&pass(&observed(jobset(&json!({}), &status), jobs))), ["-train-w-1"]);
}

#[rstest]
#[case(json!({"operator": "All"}), false)]
#[case(json!({"operator": "Any"}), true)]
#[case(json!({"operator": "Any", "targetReplicatedJobs": ["other"]}), false)]
fn the_success_policy_decides(#[case] policy: Value, #[case] completed: bool) {
    let jobs = [("train-w-0", job(0, Some(Finished::Completed))), ("train-w-1", job(0, None))];
    let plan = pass(&observed(jobset(&json!({"successPolicy": policy}), &json!(null)), jobs));
    assert_eq!(plan.status.terminal_state == "Completed", completed);
}

#[rstest]
#[case::nobody_is_targeted(json!({"successPolicy": {"operator": "All", "targetReplicatedJobs": ["nope"]}}))]
#[case::no_jobs(json!({"replicatedJobs": []}))]
fn nothing_at_all_is_not_a_success(#[case] spec: Value) {
    assert_eq!(pass(&observed(jobset(&spec, &json!(null)), [])).status.terminal_state, "");
}

#[test]
fn a_job_of_another_owner_is_left_alone_and_one_of_a_predecessor_is_waited_for() {
    let owned_by = |kind: &str| Controller { kind: kind.to_owned(), name: "train".to_owned(), uid: "old".to_owned() };
    let foreign = |kind: &str| JobView { controller: Some(owned_by(kind)), ..job(0, None) };
    let jobs = [("train-w-0", foreign("CronJob")), ("train-w-1", foreign("JobSet"))];
    let plan = pass(&observed(jobset(&json!({}), &json!(null)), jobs));
    assert_eq!((jobs_of(&plan), reasons(&plan)), (vec![], vec!["JobNameTaken"]));
    assert!(plan.notes[0].message.contains("train-w-0"), "{}", plan.notes[0].message);
}

#[test]
fn what_is_deleted_or_managed_by_another_is_left_alone() {
    let mut deleted = jobset(&json!({}), &json!(null));
    deleted.metadata.deletion_timestamp = Some(at(1));
    let managed = jobset(&json!({"managedBy": "example.com/other"}), &json!(null));
    for jobset in [deleted, managed] {
        assert_eq!(pass(&observed(jobset, [])), Plan::default());
    }
}

#[test]
fn a_hostile_size_is_left_alone() {
    let group = json!({"name": "a", "replicas": i32::MAX, "template": {"spec": {"parallelism": i32::MAX}}});
    let plan = pass(&observed(jobset(&json!({"replicatedJobs": [group]}), &json!(null)), []));
    assert_eq!((jobs_of(&plan), reasons(&plan)), (vec![], vec!["InvalidSpecification"]));
    assert!(conditions::is_true(&plan.status.conditions, conditions::INVALID));
}

#[test]
fn a_large_jobset_takes_its_turn_with_others() {
    let group = json!({"name": "a", "replicas": 100_000, "template": {"spec": {}}});
    let plan = pass(&observed(jobset(&json!({"replicatedJobs": [group]}), &json!(null)), []));
    assert_eq!(jobs_of(&plan).len(), 1000);
}
