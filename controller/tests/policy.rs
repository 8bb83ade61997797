//! The failure policy: what each action does, and which rule decides.

use anyhow::{Context, Result};
use jobset_api::conditions;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Space};
use crate::kubelet::pod_of;
use crate::outcome::condition;
use crate::program::Program;
use crate::workload::recreated;

const BACKOFF: &str = "BackoffLimitExceeded";

#[tokio::test]
async fn fail_jobset_fails_the_jobset_at_once_and_stops_what_still_runs() -> Result<()> {
    let space = Space::new("fail-jobset").await?;
    let policy = json!({"maxRestarts": 9, "rules": [{"action": "FailJobSet", "name": "hopeless"}]});
    space.create(recreated("train", &policy, &[("w", 2)])).await?;
    space.pods("train", 2, "0").await?;
    space.fail_job("train-w-0", BACKOFF).await?;

    let (end, status) = space.ended("train").await?;
    assert_eq!((&*end.type_, &*end.reason), (conditions::FAILED, conditions::FAIL_JOB_SET_ACTION));
    assert!(end.message.starts_with("Job train-w-0 failed (BackoffLimitExceeded: "), "{}", end.message);
    assert!(end.message.ends_with("; rule hopeless"), "{}", end.message);
    assert_eq!((status.restarts, status.restarts_count_towards_max), (0, 0));
    space.job_gone("train-w-1").await?;
    space.job("train-w-0").await?;
    Ok(())
}

#[tokio::test]
async fn restart_jobset_recreates_all_jobs_and_names_its_rule_until_they_run_again() -> Result<()> {
    let space = Space::new("restart-jobset").await?;
    let policy = json!({"maxRestarts": 1, "rules": [{"action": "RestartJobSet", "name": "again"}]});
    space.create(recreated("train", &policy, &[("w", 1), ("x", 1)])).await?;
    let (w, x) = (space.job("train-w-0").await?, space.job("train-x-0").await?);
    space.fail_job("train-w-0", BACKOFF).await?;

    let status = space.restarted("train", (1, 1, 1)).await?;
    let restarting = condition(&status, conditions::RESTARTING).context("no condition")?;
    assert_eq!((&*restarting.status, &*restarting.reason), ("True", "FailurePolicy_again"));
    space.note("RestartJobSetFailurePolicyAction", "Job train-w-0 failed").await?;
    for before in [&w, &x] {
        let job = space.job_after(before).await?;
        assert_eq!(job.labels()["jobset.sigs.k8s.io/restart-attempt"], "1");
    }
    for pod in space.pods("train", 2, "1").await? {
        space.run(&pod).await?;
    }
    let over = space.condition("train", conditions::RESTARTING, "False").await?;
    assert_eq!(over.reason, conditions::JOBS_READY);
    Ok(())
}

#[tokio::test]
async fn restart_jobset_and_ignore_max_restarts_spends_no_budget() -> Result<()> {
    let space = Space::new("restart-jobset-ignored").await?;
    let policy = json!({"maxRestarts": 0, "rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]});
    space.create(recreated("train", &policy, &[("w", 2)])).await?;
    for (attempt, restarts) in [("0", 1), ("1", 2)] {
        space.pods("train", 2, attempt).await?;
        space.fail_job("train-w-1", BACKOFF).await?;
        space.restarted("train", (restarts, 0, restarts)).await?;
    }
    space.pods("train", 2, "2").await?;
    Ok(())
}

#[rstest]
#[case::restart_job("restart-job", "RestartJob", &[0, 1])]
#[case::its_name_in_the_seeds("recreate-job", "RecreateJob", &[0, 1])]
#[case::uncounted("restart-job-ignored", "RestartJobAndIgnoreMaxRestarts", &[])]
#[tokio::test]
async fn restart_job_recreates_the_failed_job_alone(
    #[case] namespace: &str,
    #[case] action: &str,
    #[case] counted: &[i32],
) -> Result<()> {
    let space = Space::new(namespace).await?;
    // What is not counted needs no budget.
    let policy = json!({"maxRestarts": counted.len() / 2, "rules": [{"action": action}]});
    space.create(recreated("train", &policy, &[("w", 2)])).await?;
    let (kept, failed) = (space.job("train-w-0").await?, space.job("train-w-1").await?);
    space.fail_job("train-w-1", BACKOFF).await?;

    let job = space.job_after(&failed).await?;
    let attempts =
        ["restart-attempt", "job-restart-attempt"].map(|key| &job.labels()[&format!("jobset.sigs.k8s.io/{key}")]);
    assert_eq!(attempts, ["0", "1"]);
    assert_eq!(space.job("train-w-0").await?.uid(), kept.uid(), "the other one runs on");
    let status = space.status("train").await?;
    assert_eq!((status.restarts, status.restarts_count_towards_max, status.group_restarts), (0, 0, 0));
    let group = status.replicated_job("w").context("no counters")?;
    assert_eq!((&*group.job_restarts, &*group.job_restarts_count_towards_max), (&[0, 1][..], counted));
    Ok(())
}

#[tokio::test]
async fn restart_replicated_job_recreates_the_jobs_of_the_failed_ones_group_alone() -> Result<()> {
    let space = Space::new("restart-replicated-job").await?;
    let policy = json!({"maxRestarts": 1, "rules": [{"action": "RestartReplicatedJob"}]});
    space.create(recreated("train", &policy, &[("driver", 1), ("w", 2)])).await?;
    let driver = space.job("train-driver-0").await?;
    let workers = [space.job("train-w-0").await?, space.job("train-w-1").await?];
    space.fail_job("train-w-0", BACKOFF).await?;
    for before in &workers {
        let job = space.job_after(before).await?;
        assert_eq!(job.labels()["jobset.sigs.k8s.io/job-restart-attempt"], "1");
    }
    assert_eq!(space.job("train-driver-0").await?.uid(), driver.uid(), "the driver runs on");
    let status = space.status("train").await?;
    let counters = |name: &str| status.replicated_job(name).map(|it| (it.restarts, it.restarts_count_towards_max));
    assert_eq!((status.restarts, counters("w"), counters("driver")), (0, Some((1, 1)), Some((0, 0))));
    Ok(())
}

#[rstest]
#[case::of_all_jobs("fail-job", json!(null), conditions::FAILED)]
#[case::of_any_job("fail-job-any", json!({"operator": "Any"}), conditions::COMPLETED)]
#[tokio::test]
async fn fail_job_leaves_the_job_failed_and_the_rest_decides_by_the_success_policy(
    #[case] namespace: &str,
    #[case] success: Value,
    #[case] end: &str,
) -> Result<()> {
    let space = Space::new(namespace).await?;
    let policy = json!({"maxRestarts": 9, "rules": [{"action": "FailJob"}]});
    let mut jobset = recreated("train", &policy, &[("w", 3)]);
    jobset["spec"]["successPolicy"] = success;
    space.create(jobset).await?;
    let pods = space.pods("train", 3, "0").await?;
    let pod = |job: &str| pod_of(&pods, job, "0").context("no Pod");
    space.fail(pod("train-w-1")?, 7).await?;
    let status = space
        .status_once("train", "with one Job left failed", |status| {
            status.replicated_job("w").is_some_and(|counted| (counted.failed, counted.active) == (1, 2))
        })
        .await?;
    assert_eq!((status.restarts, &*status.terminal_state), (0, ""));

    space.succeed(pod("train-w-0")?).await?;
    if end == conditions::FAILED {
        space.fail(pod("train-w-2")?, 7).await?;
    }
    let (ended, status) = space.ended("train").await?;
    assert_eq!(ended.type_, end);
    let counted = status.replicated_job("w").context("no counters")?;
    assert_eq!((counted.succeeded, counted.job_restarts.len()), (1, 0));
    if end == conditions::FAILED {
        assert_eq!(ended.reason, conditions::JOBS_LEFT_FAILED);
        let wanted =
            "all Jobs have finished, 1 completed, and the success policy is not met; failed: train-w-1, train-w-2";
        assert_eq!(ended.message, wanted);
    }
    Ok(())
}

#[tokio::test]
async fn a_rule_is_for_its_reasons_and_the_first_that_matches_decides() -> Result<()> {
    let space = Space::new("reasons").await?;
    let policy = json!({"maxRestarts": 9, "rules": [
        {"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded", "FailedIndexes"], "name": "dead"},
        {"action": "RestartJob", "onJobFailureReasons": [BACKOFF]},
        {"action": "FailJobSet", "name": "never"},
    ]});
    space.create(recreated("train", &policy, &[("w", 1)])).await?;
    let first = space.job("train-w-0").await?;
    space.fail_job("train-w-0", BACKOFF).await?;
    space.job_after(&first).await?;
    space.fail_job("train-w-0", "FailedIndexes").await?;
    let (end, _) = space.ended("train").await?;
    assert_eq!(end.reason, conditions::FAIL_JOB_SET_ACTION);
    assert!(end.message.ends_with("; rule dead"), "{}", end.message);
    Ok(())
}

#[tokio::test]
async fn a_rule_is_for_its_message_patterns() -> Result<()> {
    let space = Space::new("patterns").await?;
    let policy = json!({"maxRestarts": 9, "rules": [
        {"action": "RestartJob", "onJobFailureReasons": ["PodFailurePolicy"],
         "onJobFailureMessagePatterns": ["^nothing of the kind$", "failed with exit code 1[0-9] "]},
        {"action": "FailJobSet", "name": "others"},
    ]});
    let mut jobset = recreated("train", &policy, &[("w", 1)]);
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"] =
        json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}}]});
    space.create(jobset).await?;
    let first = space.job("train-w-0").await?;
    space.fail(&space.pods("train", 1, "0").await?[0], 13).await?;
    space.job_after(&first).await?;
    space.fail(&space.pods("train", 1, "0").await?[0], 23).await?;
    let (end, _) = space.ended("train").await?;
    assert!(end.message.contains("failed with exit code 23 ") && end.message.ends_with("; rule others"), "{end:?}");
    Ok(())
}

/// KEP-262, "Integration tests".
#[tokio::test]
async fn a_rule_is_for_the_replicated_jobs_that_it_targets_and_others_get_the_default() -> Result<()> {
    let space = Space::new("targets").await?;
    let policy = json!({"maxRestarts": 1, "rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["w"]}]});
    space.create(recreated("train", &policy, &[("w", 1), ("x", 1)])).await?;
    space.pods("train", 2, "0").await?;
    space.fail_job("train-x-0", BACKOFF).await?;
    let status = space.restarted("train", (1, 1, 1)).await?;
    let restarting = condition(&status, conditions::RESTARTING).context("no condition")?;
    assert_eq!(restarting.reason, conditions::DEFAULT_FAILURE_POLICY);
    space.pods("train", 2, "1").await?;
    space.fail_job("train-w-0", BACKOFF).await?;
    let (end, status) = space.ended("train").await?;
    assert_eq!((&*end.reason, status.restarts), (conditions::FAIL_JOB_SET_ACTION, 1));
    Ok(())
}

#[tokio::test]
async fn a_failed_job_without_a_failure_policy_fails_the_jobset() -> Result<()> {
    let space = Space::new("no-policy").await?;
    space.create(recreated("train", &json!(null), &[("w", 1)])).await?;
    space.pods("train", 1, "0").await?;
    space.fail_job("train-w-0", BACKOFF).await?;
    let (end, _) = space.ended("train").await?;
    assert_eq!(end.reason, conditions::FAILED_JOBS);
    Ok(())
}

/// Says when a Job that has failed did so: seconds of the year 2000.
async fn failed_at(space: &Space, job: &str, second: u32) -> Result<()> {
    let has_failed = |job: &k8s_openapi::api::batch::v1::Job| {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.type_ == "Failed" && condition.status == "True")
    };
    space.job_where(job, "to have failed", has_failed).await?;
    let at = format!("2000-01-01T00:00:{second:02}Z");
    let patch = json!({"status": {"conditions": [{"type": "Failed", "lastTransitionTime": at}]}});
    space.jobs().patch_status(job, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}

#[tokio::test]
async fn of_several_failed_jobs_the_first_rule_that_any_matches_decides_then_the_earliest_then_the_name() -> Result<()>
{
    let mut fixture = Fixture::start_with(&["--leader-elect=false"]).await?;
    let rule = |action: &str, reason: &str| json!({"action": action, "onJobFailureReasons": [reason]});
    let cases = [
        // The rule decides before the time does.
        ("rules", json!([rule("FailJobSet", "FailedIndexes"), rule("RestartJobSet", BACKOFF)]), "Job rules-w-2 failed"),
        // The time decides before the name does.
        ("times", json!([rule("RestartJobSet", "DeadlineExceeded"), {"action": "FailJobSet"}]), "Job times-w-1 failed"),
        ("names", json!([]), "Job names-w-1 failed"),
    ];
    for (name, rules, _) in &cases {
        fixture.create(recreated(name, &json!({"maxRestarts": 0, "rules": rules}), &[("w", 3)])).await?;
        fixture.pods(name, 3, "0").await?;
    }
    // What failed before it started, the controller judges at once.
    fixture.controller.signal(Signal::KILL)?;
    fixture.controller.ended().await?;
    for (name, seconds) in [("rules", [1, 2, 3]), ("times", [2, 1, 3]), ("names", [2, 1, 1])] {
        for (index, (second, reason)) in seconds.into_iter().zip([BACKOFF, BACKOFF, "FailedIndexes"]).enumerate() {
            let job = format!("{name}-w-{index}");
            fixture.fail_job(&job, reason).await?;
            failed_at(&fixture, &job, second).await?;
        }
    }
    fixture.controller = Program::start(&fixture.plane, "successor", &["--leader-elect=false"])?;
    for (name, _, named) in &cases {
        let (end, _) = fixture.ended(name).await?;
        assert!(end.message.contains(named), "{name}: {}", end.message);
    }
    fixture.plane.stop().await
}
