//! Workers that make no progress: what their JobSet says, what it does, and where its ledger puts the time.

use anyhow::{Context, Result, ensure};
use jobset_api::{JobSetStatus, LedgerBucket, conditions, event, labels};
use jobset_chaos::AccountedTime;
use jobset_harness::group::{Group, LIMIT, Worker, Workers};
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{SUPERVISED, WORKER_PORT, Workload};
use k8s_openapi::jiff::Timestamp;
use rstest::rstest;
use serde_json::json;

use super::ends::{has_restarted, notes, says};
use super::shared::{assert_in_place, installed, run_kubectl_jobset, start, with_admission};

/// Two workers that make five steps in a second, and stall after five seconds without one. Before its first step an agent waits for
/// longer: a worker that starts late must not restart its group.
fn stepping(workload: Workload, shape: &str, annotations: &[(&str, &str)]) -> Workload {
    let mut workload = workload.injected(shape).of_shape(1, 2).with_env("STEP_MILLISECONDS", "200");
    for (name, value) in [&[(labels::STALL_AFTER, "5s"), (labels::STALL_FIRST, "20s")], annotations].concat() {
        workload.0["metadata"]["annotations"][name] = json!(value);
    }
    workload
}

/// Has a worker hang, or go on with `none`.
async fn hang(group: &Group, worker: &Worker, how: &str) -> Result<()> {
    group.get(worker, WORKER_PORT, &format!("/hang?how={how}")).await.map(drop)
}

async fn all_hang(group: &Group, workers: &Workers, how: &str) -> Result<()> {
    for worker in workers.values() {
        hang(group, worker, how).await?;
    }
    Ok(())
}

/// Waits until the condition ProgressStalled is false for this reason; the status.
async fn calms(group: &Group, reason: &str) -> Result<JobSetStatus> {
    wait::until_met(LIMIT, format!("{reason} of {}", group.namespace), || async {
        let status = group.status().await?;
        let found = status.conditions.iter().find(|it| it.type_ == conditions::PROGRESS_STALLED);
        let is_met = found.is_some_and(|it| it.status == "False" && it.reason == reason);
        Ok(if is_met { Check::Met(status) } else { Check::Unmet(format!("{found:?}")) })
    })
    .await
}

/// Asserts that the ledger adds up to the age of the JobSet, and has all of the stalled time.
async fn ledger_adds_up(group: &Group) -> Result<()> {
    let accounted = AccountedTime::of(&group.jobsets.get(&group.name).await?, Timestamp::now())?;
    ensure!(accounted.violation().is_none(), "{accounted}");
    ensure!(accounted.times.of(LedgerBucket::Stalled) >= 5_000, "{accounted}");
    Ok(())
}

#[rstest]
#[case::sidecar("stall-sidecar", "Sidecar", "step=")]
#[case::supervisor("stall-supervisor", "Supervisor", "ms of CPU in")]
#[tokio::test]
async fn workers_that_hang_are_noticed_until_they_go_on(
    #[case] namespace: &str,
    #[case] shape: &str,
    #[case] evidence: &str,
) -> Result<()> {
    let (group, workers) = start(namespace, SUPERVISED, |workload| stepping(workload, shape, &[])).await?;
    all_hang(&group, &workers, "wait").await?;
    says(&group, conditions::PROGRESS_STALLED, &["no worker has made progress since", ", step "]).await?;
    notes(&group, event::PROGRESS_STALLED, &["no worker has made progress since", evidence]).await?;
    let (explained, _) = run_kubectl_jobset(installed().await?, &["explain", &group.name, "-n", namespace]).await?;
    ensure!(explained.contains("1. All workers run, and none makes progress."), "{explained}");

    all_hang(&group, &workers, "none").await?;
    let status = calms(&group, conditions::PROGRESS_RESUMED).await?;
    let pause = status.progress.as_ref().and_then(|progress| progress.longest_pause_seconds);
    ensure!(pause >= Some(5), "{:?}", status.progress);
    notes(&group, event::PROGRESS_RESUMED, &["workers make progress again"]).await?;
    has_restarted(&group, 0, 0).await?;
    ensure!(group.workers().await? == workers, "nothing has restarted");
    ledger_adds_up(&group).await?;
    group.remove().await
}

/// A sidecar sees no processes, so that it blames nobody whose step is not the lowest. The first process of a container cannot stop
/// itself.
#[rstest]
#[case::sidecar("stall-restart-sidecar", "Sidecar", "wait")]
#[case::supervisor("stall-restart-supervisor", "Supervisor", "stop")]
#[tokio::test]
async fn workers_that_hang_restart_in_place_once(
    #[case] namespace: &str,
    #[case] shape: &str,
    #[case] how: &str,
) -> Result<()> {
    let restarting = |workload| stepping(workload, shape, &[(labels::ON_STALL, "Restart")]);
    let (group, before) = start(namespace, SUPERVISED, restarting).await?;
    let first = before.values().next().context("no worker")?;
    all_hang(&group, &before, "wait").await?;
    hang(&group, first, how).await?;
    let after = group.runs_in_epoch(2).await?;
    assert_in_place(&before, &after);
    calms(&group, conditions::PROGRESS_RESUMED).await?;
    has_restarted(&group, 1, 1).await?;
    let status = group.status().await?;
    let cause = status.recent_restarts.last().context("no restart")?.message.clone();
    ensure!(cause.contains("no worker has made progress since"), "{cause}");
    if how == "stop" {
        let verdict = format!("Pod {} on node {} is stopped by a signal or a debugger", first.pod, first.node);
        ensure!(cause.contains(&verdict), "{cause}");
        ensure!(status.node_strikes.iter().any(|strike| strike.node == first.node), "{:?}", status.node_strikes);
    }
    notes(&group, event::RESTARTING, &["no worker has made progress since", "counted"]).await?;
    ledger_adds_up(&group).await?;
    group.remove().await
}

#[rstest]
#[case::sidecar("no-progress-sidecar", "Sidecar")]
#[case::supervisor("no-progress-supervisor", "Supervisor")]
#[tokio::test]
async fn workers_that_fail_at_same_step_fail_for_good(#[case] namespace: &str, #[case] shape: &str) -> Result<()> {
    let cluster = installed().await?;
    let _admission = with_admission().await;
    let group = Group::apply(cluster, namespace, SUPERVISED, |workload| {
        stepping(workload, shape, &[(labels::MAX_RESTARTS_WITHOUT_PROGRESS, "2")]).with_env("EXIT_AT_STEP", "10")
    })
    .await?;
    let status = group.finished().await?;
    let failed = conditions::terminal(&status.conditions).context("no final condition")?;
    ensure!(failed.reason == conditions::NO_PROGRESS && failed.message.contains("no step beyond 10,"), "{failed:?}");
    let progress = status.progress.context("no progress")?;
    assert_eq!((progress.step, progress.restarts_without_progress), (Some(10), 2));
    // The first one has nothing to be compared with, and the last one is judged when its epoch would begin.
    ensure!(status.group_restarts == 3, "{:?}", status.recent_restarts);
    Ok(())
}

/// The rule is the same in both shapes, and takes a minute.
#[tokio::test]
async fn slow_worker_is_named_and_never_restarts_its_group() -> Result<()> {
    let restarting = |workload| stepping(workload, "Supervisor", &[(labels::ON_STALL, "Restart")]);
    let (group, workers) = start("straggler", SUPERVISED, restarting).await?;
    let slow = workers.values().next().context("no worker")?;
    hang(&group, slow, "wait").await?;
    notes(&group, event::STRAGGLER, &[&slow.pod, "has made no progress since", "and others do"]).await?;
    calms(&group, conditions::STRAGGLER).await?;
    hang(&group, slow, "none").await?;
    calms(&group, conditions::PROGRESS_RESUMED).await?;
    has_restarted(&group, 0, 0).await?;
    ensure!(group.workers().await? == workers, "nothing has restarted");
    group.remove().await
}
