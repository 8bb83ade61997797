//! The failure policy, as far as the API server and the Job controller have a part in it: `cases/plan/failure` has the rest.

use anyhow::{Context, Result};
use jobset_api::conditions;
use kube::ResourceExt;
use serde_json::json;

use crate::fixture::Space;
use crate::outcome::condition;
use crate::workload::recreated;

const BACKOFF: &str = "BackoffLimitExceeded";

#[tokio::test]
async fn restart_jobset_recreates_jobs_and_names_rule_until_running() -> Result<()> {
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
