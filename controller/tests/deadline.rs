//! `activeDeadlineSeconds` (KEP-1186): who fails by it, and when its time begins.

use anyhow::{Context, Result};
use jobset_api::{JobSetStatus, conditions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Space, in_place};
use crate::jobsets::{group, jobset, with};
use crate::workload::recreated;

const ON: &str = "--feature-gates=JobSetActiveDeadlineSeconds=true";
const HOUR: i64 = 3600;
const CENTURY: i64 = 876_000 * HOUR;

fn within(jobset: Value, seconds: i64) -> Value {
    with(jobset, &json!({"spec": {"activeDeadlineSeconds": seconds}}))
}

/// Moves the start of the JobSet into the past: nobody waits for its deadline.
async fn has_run_for_long(space: &Space, name: &str) -> Result<()> {
    let status = json!({"status": {"startTime": "2026-01-01T00:00:00Z"}});
    space.jobsets().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

fn started(status: &JobSetStatus) -> Option<Time> {
    status.start_time.clone()
}

#[tokio::test]
async fn deadline_passes_and_the_jobset_fails_for_good() -> Result<()> {
    let fixture = Fixture::start_with(&[ON]).await?;
    // The wake-up is the controller's own: nothing else happens to the JobSet.
    fixture.create(within(jobset("train", &[group("w", 2, 1)]), 2)).await?;
    let (end, status) = fixture.ended("train").await?;
    assert_eq!((&*end.type_, &*end.reason), (conditions::FAILED, conditions::DEADLINE_EXCEEDED));
    assert_eq!(end.message, "JobSet was active for longer than the specified deadline of 2s");
    let Time(start) = status.start_time.context("no start time")?;
    assert!(end.last_transition_time.0.duration_since(start).as_secs() >= 2, "{start} {:?}", end.last_transition_time);
    for job in ["train-w-0", "train-w-1"] {
        fixture.job_gone(job).await?;
    }
    fixture.note("DeadlineExceeded", "deadline of 2s").await?;
    let series = r#"jobset_active_deadline_exceeded_total{jobset_name="train",namespace="default"}"#;
    fixture.controller.has_metric(series, Some(1.0)).await?;
    fixture.controller.has_metric(r#"jobset_failed_total{jobset_name="train",namespace="default"}"#, Some(1.0)).await?;

    // One that has completed before is not failed, nor is one that waits suspended or has no deadline.
    fixture.create(within(jobset("completed", &[group("w", 1, 1)]), HOUR)).await?;
    fixture.complete_job("completed-w-0", 1).await?;
    assert_eq!(fixture.ended("completed").await?.0.type_, conditions::COMPLETED);
    has_run_for_long(&fixture, "completed").await?;
    fixture.create(jobset("endless", &[group("w", 1, 1)])).await?;
    fixture.pods_of("endless-w-0", 1).await?;
    has_run_for_long(&fixture, "endless").await?;
    let suspended = with(jobset("suspended", &[group("w", 1, 1)]), &json!({"spec": {"suspend": true}}));
    fixture.create(within(suspended, 1)).await?;
    fixture.condition("suspended", conditions::SUSPENDED, "True").await?;
    fixture.create(within(jobset("last", &[group("w", 1, 1)]), 2)).await?;
    fixture.ended("last").await?;
    for (name, state) in [("completed", "Completed"), ("endless", ""), ("suspended", "")] {
        assert_eq!(fixture.status(name).await?.terminal_state, state, "{name}");
    }
    assert_eq!(started(&fixture.status("suspended").await?), None);
    // Its time begins when it is resumed.
    fixture.suspend("suspended", false).await?;
    assert_eq!(fixture.ended("suspended").await?.0.reason, conditions::DEADLINE_EXCEEDED);
    fixture.plane.stop().await
}

#[tokio::test]
async fn deadline_changes_while_the_jobset_runs() -> Result<()> {
    let fixture = Fixture::start_with(&[ON]).await?;
    let specified = |seconds: Value| json!({"spec": {"activeDeadlineSeconds": seconds}});
    for name in ["lowered", "added", "raised", "removed"] {
        fixture.create(within(jobset(name, &[group("w", 1, 1)]), HOUR)).await?;
        fixture.pods_of(&format!("{name}-w-0"), 1).await?;
    }
    // Long enough that no deadline passes before it is changed.
    fixture.edit("added", specified(Value::Null)).await?;
    fixture.edit("raised", specified(json!(i64::MAX))).await?;
    fixture.edit("removed", specified(Value::Null)).await?;
    for name in ["lowered", "added", "raised", "removed"] {
        fixture.status_once(name, "to have started", |status| status.start_time.is_some()).await?;
        // By an hour, `raised` would be over; the other ones are at once when a deadline is set.
        if name != "lowered" {
            has_run_for_long(&fixture, name).await?;
        }
    }
    fixture.edit("lowered", specified(json!(1))).await?;
    fixture.edit("added", specified(json!(60))).await?;
    for name in ["lowered", "added"] {
        assert_eq!(fixture.ended(name).await?.0.reason, conditions::DEADLINE_EXCEEDED, "{name}");
    }
    fixture.settle().await?;
    for name in ["raised", "removed"] {
        assert_eq!(fixture.status(name).await?.terminal_state, "", "{name}");
    }
    fixture.plane.stop().await
}

#[tokio::test]
async fn expired_deadline_beats_a_failure_and_success_beats_it() -> Result<()> {
    let mut fixture = Fixture::start_with(&[ON]).await?;
    let policy = json!({"maxRestarts": 9});
    for name in ["failed", "done"] {
        fixture.create(within(recreated(name, &policy, &[("w", 2)]), HOUR)).await?;
        fixture.pods(name, 2, "0").await?;
    }
    // The controller finds both of each at once: the end of the Jobs, and the deadline.
    fixture.controller.signal(rustix::process::Signal::KILL)?;
    fixture.controller.ended().await?;
    fixture.fail_job("failed-w-0", "BackoffLimitExceeded").await?;
    let is_over = |job: &k8s_openapi::api::batch::v1::Job| {
        let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.filter(|it| ["Failed", "Complete"].contains(&&*it.type_)).any(|it| it.status == "True")
    };
    fixture.job_where("failed-w-0", "to fail", is_over).await?;
    for job in ["done-w-0", "done-w-1"] {
        fixture.complete_job(job, 1).await?;
        fixture.job_where(job, "to complete", is_over).await?;
    }
    for name in ["failed", "done"] {
        has_run_for_long(&fixture, name).await?;
    }
    let successor = crate::program::Program::start(&fixture.plane, "successor", &[ON, "--leader-elect=false"])?;
    fixture.controller = successor;
    let (end, status) = fixture.ended("failed").await?;
    assert_eq!((&*end.reason, status.restarts), (conditions::DEADLINE_EXCEEDED, 0));
    let (end, _) = fixture.ended("done").await?;
    assert_eq!(end.type_, conditions::COMPLETED);
    fixture.plane.stop().await
}

#[tokio::test]
async fn start_time_follows_suspension_and_restarts_of_the_whole() -> Result<()> {
    let fixture = Fixture::start_with(&[ON]).await?;
    let long_ago: Time = serde_json::from_value(json!("2026-01-01T00:00:00Z"))?;
    let rules = json!([{"action": "RestartJob", "onJobFailureReasons": ["FailedIndexes"]}]);
    let policy = json!({"maxRestarts": 9, "rules": rules});
    fixture.create(within(recreated("train", &policy, &[("w", 2)]), CENTURY)).await?;
    let first = fixture.job("train-w-0").await?;
    fixture.status_once("train", "to have started", |status| status.start_time.is_some()).await?;
    has_run_for_long(&fixture, "train").await?;

    fixture.fail_job("train-w-0", "FailedIndexes").await?;
    let alone = fixture.job_after(&first).await?;
    let status = fixture.status("train").await?;
    assert_eq!((started(&status), status.restarts), (Some(long_ago.clone()), 0), "one Job alone");

    fixture.fail_job("train-w-0", "BackoffLimitExceeded").await?;
    fixture.job_after(&alone).await?;
    let status = fixture.status("train").await?;
    assert!(status.start_time > Some(long_ago.clone()) && status.restarts == 1, "{status:?}");

    has_run_for_long(&fixture, "train").await?;
    fixture.suspend("train", true).await?;
    fixture.status_once("train", "without a start", |status| status.start_time.is_none()).await?;
    fixture.condition("train", conditions::SUSPENDED, "True").await?;
    fixture.suspend("train", false).await?;
    fixture.status_once("train", "to have started again", |status| status.start_time > Some(long_ago.clone())).await?;

    // In place: the failure of one worker restarts all of them.
    fixture.create(within(in_place("in-place", 2, 9), CENTURY)).await?;
    let pods = fixture.pods("in-place", 2, "0").await?;
    for pod in &pods {
        fixture.report(pod, "1").await?;
    }
    fixture.in_epoch("in-place", (1, 0, 0, 0)).await?;
    has_run_for_long(&fixture, "in-place").await?;
    fixture.report(&pods[0], "2").await?;
    let status = fixture.in_epoch("in-place", (1, 1, 1, 1)).await?;
    assert!(status.start_time > Some(long_ago) && status.restarts == 0, "{status:?}");
    fixture.plane.stop().await
}

#[tokio::test]
async fn deadline_with_gate_off_or_of_another_manager_is_left_alone() -> Result<()> {
    let space = Space::new("deadline-off").await?;
    space.create(within(jobset("train", &[group("w", 1, 1)]), 1)).await?;
    space.pods_of("train-w-0", 1).await?;
    has_run_for_long(&space, "train").await?;
    space.suspend("train", true).await?;
    space.condition("train", conditions::SUSPENDED, "True").await?;
    space.suspend("train", false).await?;
    space.condition("train", conditions::SUSPENDED, "False").await?;
    let status = space.status("train").await?;
    assert_eq!(started(&status), Some(serde_json::from_value(json!("2026-01-01T00:00:00Z"))?));
    assert_eq!(status.terminal_state, "");

    let fixture = Fixture::start_with(&[ON]).await?;
    let elsewhere =
        with(jobset("elsewhere", &[group("w", 1, 1)]), &json!({"spec": {"managedBy": "example.com/other"}}));
    fixture.create(within(elsewhere, 1)).await?;
    fixture.settle().await?;
    assert_eq!(fixture.jobsets().get("elsewhere").await?.status, None);
    has_run_for_long(&fixture, "elsewhere").await?;
    fixture.settle().await?;
    assert_eq!(fixture.status("elsewhere").await?.terminal_state, "");
    fixture.plane.stop().await
}
