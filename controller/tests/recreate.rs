//! Recreate, with its counter.

use anyhow::{Context, Result};
use jobset_api::conditions;
use serde_json::json;

use crate::fixture::{Fixture, in_place, next};

#[tokio::test]
async fn a_failed_job_restarts_all_jobs_until_the_budget_is_spent() -> Result<()> {
    let fixture = Fixture::start().await?;
    let mut jobset = in_place("train", 1, 1);
    jobset["spec"]["failurePolicy"] = json!({"maxRestarts": 1});
    jobset["spec"]["replicatedJobs"][0]["replicas"] = json!(2);
    fixture.create(jobset).await?;
    let first = fixture.pods("train", 2, "0").await?;

    fixture.fail_job("train-workers-1", "BackoffLimitExceeded").await?;
    let second = fixture.pods("train", 2, "1").await?;
    let uids = |pods: &[k8s_openapi::api::core::v1::Pod]| -> Vec<_> {
        pods.iter().map(|pod| pod.metadata.uid.clone()).collect()
    };
    assert!(uids(&first).iter().all(|uid| !uids(&second).contains(uid)), "all Pods are new");
    let status = fixture.jobsets().get("train").await?.status.context("no status")?;
    assert_eq!((status.restarts, status.restarts_count_towards_max, status.group_restarts), (1, 1, 1));

    let mut history = fixture.history("train").await?;
    fixture.fail_job("train-workers-0", "BackoffLimitExceeded").await?;
    let status = loop {
        let status = next(&mut history).await?.status.context("no status")?;
        if status.terminal_state == "Failed" {
            break status;
        }
    };
    assert_eq!((status.restarts, status.restarts_count_towards_max), (1, 1));
    let condition = conditions::terminal(&status.conditions).context("no final condition")?;
    assert_eq!(condition.reason, conditions::REACHED_MAX_RESTARTS);
    assert!(condition.message.contains("Job train-workers-0 failed"), "{}", condition.message);
    fixture.pods("train", 0, "1").await?;
    fixture.plane.stop().await
}
