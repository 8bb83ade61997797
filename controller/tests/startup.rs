//! The order in which replicatedJobs start: `cases/plan/start` has the cases, and dependsOn.

use anyhow::Result;
use serde_json::json;

use crate::fixture::Space;
use crate::jobsets::{feature, with};

/// How a replicatedJob is counted ([`Space::counts`]) whose so many Jobs run, and so many of them are ready.
const fn active(jobs: i32, ready: i32) -> [i32; 5] {
    [jobs, ready, 0, 0, 0]
}

#[tokio::test]
async fn in_order_creates_replicated_job_after_previous_is_ready() -> Result<()> {
    let space = Space::new("in-order").await?;
    space.create(with(feature("startup-policy-in-order")?, &json!({"metadata": {"name": "train"}}))).await?;
    let (server, gateways) = ("train-server-0", ["train-gateway-0", "train-gateway-1"]);
    let workers = ["train-workers-0", "train-workers-1"];

    space.counts("train", "server", active(1, 0)).await?;
    space.jobs_of("train", &[server]).await?;
    let condition = space.condition("train", "StartupPolicyInProgress", "True").await?;
    assert_eq!(condition.reason, "InOrderStartupPolicyInProgress");
    assert_eq!(condition.message, "in order startup policy is in progress");

    space.run_job(server, 1).await?;
    space.counts("train", "gateway", active(2, 0)).await?;
    space.jobs_of("train", &[&gateways[..], &[server]].concat()).await?;

    // One of the two is not enough.
    space.run_job(gateways[1], 1).await?;
    space.counts("train", "gateway", active(2, 1)).await?;
    space.jobs_of("train", &[&gateways[..], &[server]].concat()).await?;
    space.run_job(gateways[0], 1).await?;
    space.counts("train", "workers", active(2, 0)).await?;
    space.jobs_of("train", &[&gateways[..], &[server], &workers].concat()).await?;

    // The policy has been carried out when the last ones are ready, not when they are created.
    let status = space.condition("train", "StartupPolicyInProgress", "True").await?;
    assert_eq!(status.last_transition_time, condition.last_transition_time, "it has not changed on the way");
    for job in workers {
        space.run_job(job, 2).await?;
    }
    let condition = space.condition("train", "StartupPolicyCompleted", "True").await?;
    assert_eq!(condition.reason, "InOrderStartupPolicyCompleted");
    assert_eq!(condition.message, "in order startup policy has completed");
    space.condition("train", "StartupPolicyInProgress", "False").await?;
    Ok(())
}
