//! `maxRestarts`: one budget for all restarts, or one for each Job, for each replicatedJob and for the whole, spent to the
//! last restart and not one more.

use anyhow::{Context, Result};
use jobset_api::{JobSetStatus, conditions, labels};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use rstest::rstest;
use serde_json::{Value, json};

use crate::fixture::{Space, in_place, next};
use crate::jobsets::with;
use crate::outcome::restarts;
use crate::workload::recreated;

const BACKOFF: &str = "BackoffLimitExceeded";

/// Restarts of the Jobs of a replicatedJob that count: each alone, and all together.
fn counted(status: &JobSetStatus, group: &str) -> Option<(Vec<i32>, i32)> {
    let group = status.replicated_job(group)?;
    Some((group.job_restarts_count_towards_max.clone(), group.restarts_count_towards_max))
}

/// Fails a Job, and waits for the one that comes in its place.
async fn fail_and_come_back(space: &Space, name: &str) -> Result<()> {
    let job = space.job(name).await?;
    space.fail_job(name, BACKOFF).await?;
    space.job_after(&job).await?;
    Ok(())
}

/// With a budget for each of its parts.
fn separate(jobset: Value) -> Value {
    with(jobset, &json!({"metadata": {"annotations": {(labels::RESTART_BUDGET): "Separate"}}}))
}

#[tokio::test]
async fn shared_budget_is_spent_by_restarts_of_all_kinds() -> Result<()> {
    let space = Space::new("shared-budget").await?;
    let rules = json!([{"action": "RestartJob", "targetReplicatedJobs": ["w"]},
                       {"action": "RestartReplicatedJob", "targetReplicatedJobs": ["x"]}]);
    let jobset = recreated("train", &json!({"maxRestarts": 3, "rules": rules}), &[("w", 2), ("x", 1), ("y", 1)]);
    // Nobody has annotated it: the controller does, before it does anything else.
    space.create(with(jobset, &json!({"metadata": {"annotations": null}}))).await?;
    fail_and_come_back(&space, "train-w-1").await?;
    fail_and_come_back(&space, "train-x-0").await?;
    let annotations = space.jobsets().get("train").await?.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations.get(labels::RESTART_BUDGET).map(String::as_str), Some("Shared"));
    let status = space.status("train").await?;
    assert_eq!(status.replicated_job("w").map(|it| &*it.job_restarts), Some(&[0, 1][..]), "as many as Jobs");
    let before = space.job("train-w-0").await?;
    fail_and_come_back(&space, "train-y-0").await?;
    // All Jobs are recreated, each as soon as its predecessor is gone.
    space.job_after(&before).await?;
    space.fail_job("train-w-0", BACKOFF).await?;
    let (end, status) = space.ended("train").await?;
    assert_eq!(end.reason, conditions::REACHED_MAX_RESTARTS);
    assert!(end.message.contains("together: 3 of maxRestarts 3 are spent: Job train-w-0 failed"), "{}", end.message);
    assert_eq!(counted(&status, "w"), Some((vec![0, 1], 0)));
    assert_eq!(counted(&status, "x"), Some((vec![], 1)));
    assert_eq!(restarts(&status), (1, 1, 1));
    Ok(())
}

#[tokio::test]
async fn each_job_that_restarts_alone_has_a_budget_of_its_own() -> Result<()> {
    let space = Space::new("budget-of-a-job").await?;
    let policy = json!({"maxRestarts": 1, "rules": [{"action": "RestartJob"}]});
    space.create(separate(recreated("train", &policy, &[("w", 2), ("x", 1)]))).await?;
    for job in ["train-w-0", "train-w-1", "train-x-0"] {
        fail_and_come_back(&space, job).await?;
    }
    space.fail_job("train-w-1", BACKOFF).await?;
    let (end, status) = space.ended("train").await?;
    assert_eq!(end.reason, conditions::REACHED_MAX_RESTARTS);
    let wanted =
        "reached the maximum number of restarts of Job train-w-1: 1 of maxRestarts 1 are spent: Job train-w-1 failed";
    assert!(end.message.starts_with(wanted), "{}", end.message);
    assert_eq!(counted(&status, "w"), Some((vec![1, 1], 0)));
    assert_eq!(counted(&status, "x"), Some((vec![1], 0)));
    assert_eq!(restarts(&status), (0, 0, 0));
    Ok(())
}

#[tokio::test]
async fn each_replicated_job_that_restarts_has_a_budget_of_its_own() -> Result<()> {
    let space = Space::new("budget-of-a-group").await?;
    let policy = json!({"maxRestarts": 1, "rules": [{"action": "RestartReplicatedJob"}]});
    space.create(separate(recreated("train", &policy, &[("w", 2), ("x", 1)]))).await?;
    fail_and_come_back(&space, "train-w-0").await?;
    fail_and_come_back(&space, "train-x-0").await?;
    // The other Job of the same replicatedJob spends from the same budget.
    space.fail_job("train-w-1", BACKOFF).await?;
    let (end, status) = space.ended("train").await?;
    assert_eq!(end.reason, conditions::REACHED_MAX_RESTARTS);
    let wanted =
        "reached the maximum number of restarts of replicatedJob w: 1 of maxRestarts 1 are spent: Job train-w-1 failed";
    assert!(end.message.starts_with(wanted), "{}", end.message);
    assert_eq!((counted(&status, "w"), counted(&status, "x")), (Some((vec![], 1)), Some((vec![], 1))));
    assert_eq!(restarts(&status), (0, 0, 0));
    Ok(())
}

#[tokio::test]
async fn a_failed_job_restarts_all_jobs_until_the_budget_is_spent() -> Result<()> {
    let space = Space::new("budget-of-all").await?;
    let mut jobset = in_place("train", 1, 1);
    jobset["spec"]["failurePolicy"] = json!({"maxRestarts": 1});
    jobset["spec"]["replicatedJobs"][0]["replicas"] = json!(2);
    space.create(jobset).await?;
    let first = space.pods("train", 2, "0").await?;

    space.fail_job("train-workers-1", BACKOFF).await?;
    let second = space.pods("train", 2, "1").await?;
    let uids = |pods: &[Pod]| -> Vec<_> { pods.iter().map(|pod| pod.metadata.uid.clone()).collect() };
    assert!(uids(&first).iter().all(|uid| !uids(&second).contains(uid)), "all Pods are new");
    assert_eq!(restarts(&space.status("train").await?), (1, 1, 1));

    let mut history = space.history("train").await?;
    space.fail_job("train-workers-0", BACKOFF).await?;
    let status = loop {
        let status = next(&mut history).await?.status.context("no status")?;
        assert_eq!((status.restarts, status.restarts_count_towards_max), (1, 1));
        if status.terminal_state == "Failed" {
            break status;
        }
    };
    let condition = conditions::terminal(&status.conditions).context("no final condition")?;
    assert_eq!(condition.reason, conditions::REACHED_MAX_RESTARTS);
    assert!(condition.message.contains("Job train-workers-0 failed"), "{}", condition.message);
    space.pods("train", 0, "1").await?;
    Ok(())
}

/// Whatever restarts: a Job that fails again and again runs once more than it may restart.
#[rstest]
#[case::alone("crash-loop-of-a-job", "RestartJob")]
#[case::by_its_name_in_the_seeds("crash-loop-of-a-recreated-job", "RecreateJob")]
#[case::with_its_replicated_job("crash-loop-of-a-group", "RestartReplicatedJob")]
#[case::with_all("crash-loop-of-all", "RestartJobSet")]
#[tokio::test]
async fn a_job_that_always_fails_ends_the_jobset(#[case] namespace: &str, #[case] action: &str) -> Result<()> {
    let space = Space::new(namespace).await?;
    let policy = json!({"maxRestarts": 2, "rules": [{"action": action}]});
    space.create(recreated("train", &policy, &[("w", 1)])).await?;
    let mut job = space.job("train-w-0").await?;
    for restart in 0..=2 {
        let attempts = ["restart-attempt", "job-restart-attempt"];
        let attempts = attempts.map(|key| job.labels()[&format!("jobset.sigs.k8s.io/{key}")].parse::<i32>());
        let [of_all, of_job] = attempts;
        assert_eq!(of_all? + of_job?, restart, "every Job is of another attempt");
        space.fail_job("train-w-0", BACKOFF).await?;
        if restart < 2 {
            job = space.job_after(&job).await?;
        }
    }
    let (end, _) = space.ended("train").await?;
    assert_eq!(end.reason, conditions::REACHED_MAX_RESTARTS);
    assert_eq!(space.job("train-w-0").await?.uid(), job.uid(), "the last one stays");
    Ok(())
}
