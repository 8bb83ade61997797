//! The order in which replicatedJobs start: startupPolicy InOrder, and dependsOn.

use anyhow::Result;
use serde_json::json;

use crate::fixture::Space;
use crate::jobsets::{feature, group, jobset, with};
use crate::outcome::restarts;

/// How a replicatedJob is counted ([`Space::counts`]) whose so many Jobs run, and so many of them are ready.
const fn active(jobs: i32, ready: i32) -> [i32; 5] {
    [jobs, ready, 0, 0, 0]
}

#[tokio::test]
async fn in_order_creates_each_replicated_job_when_the_one_before_is_ready() -> Result<()> {
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

#[tokio::test]
async fn in_order_suspended_creates_all_jobs_and_each_resume_begins_with_the_first() -> Result<()> {
    let space = Space::new("in-order-suspended").await?;
    let policy = json!({"spec": {"suspend": true, "startupPolicy": {"startupPolicyOrder": "InOrder"}}});
    space.create(with(jobset("train", &[group("server", 1, 1), group("workers", 1, 1)]), &policy)).await?;
    let (server, workers) = ("train-server-0", "train-workers-0");
    for round in 1..=2 {
        space.counts("train", "workers", [0, 0, 1, 0, 0]).await?;
        space.jobs_of("train", &[server, workers]).await?;
        space.only_run("train", &[]).await?;

        space.suspend("train", false).await?;
        space.counts("train", "server", active(1, 0)).await?;
        space.condition("train", "StartupPolicyInProgress", "True").await?;
        space.only_run("train", &[server]).await?;
        space.run_job(server, 1).await?;
        space.counts("train", "workers", active(1, 0)).await?;
        space.run_job(workers, 1).await?;
        space.condition("train", "StartupPolicyCompleted", "True").await?;
        if round == 1 {
            space.suspend("train", true).await?;
        }
    }
    let status = space.counts("train", "workers", active(1, 1)).await?;
    assert_eq!(restarts(&status), (0, 0, 0));
    Ok(())
}

#[tokio::test]
async fn depends_on_ready_creates_a_replicated_job_when_all_that_it_names_are_ready() -> Result<()> {
    let space = Space::new("depends-on-ready").await?;
    space.create(with(feature("depends-on-ready")?, &json!({"metadata": {"name": "train"}}))).await?;
    let (server, workers, evaluator) = ("train-server-0", ["train-workers-0", "train-workers-1"], "train-evaluator-0");

    space.counts("train", "server", active(1, 0)).await?;
    space.jobs_of("train", &[server]).await?;
    space.run_job(server, 1).await?;
    space.counts("train", "workers", active(2, 0)).await?;
    space.jobs_of("train", &[&[server], &workers[..]].concat()).await?;
    // Not with one of the workers, and not with half of the Pods of the other.
    space.run_job(workers[0], 2).await?;
    let half = space.pods_of(workers[1], 2).await?;
    space.run(&half[0]).await?;
    space.counts("train", "workers", active(2, 1)).await?;
    space.jobs_of("train", &[&[server], &workers[..]].concat()).await?;
    space.run(&half[1]).await?;
    let status = space.counts("train", "evaluator", active(1, 0)).await?;
    space.jobs_of("train", &[&[evaluator, server], &workers[..]].concat()).await?;
    assert!(status.conditions.is_empty(), "conditions tell of the startup policy alone: {:?}", status.conditions);
    Ok(())
}

#[tokio::test]
async fn depends_on_complete_creates_a_replicated_job_when_all_jobs_of_the_other_have_completed() -> Result<()> {
    let space = Space::new("depends-on-complete").await?;
    space.create(with(feature("depends-on-complete")?, &json!({"metadata": {"name": "train"}}))).await?;
    let fetch = ["train-fetch-0", "train-fetch-1"];
    space.jobs_of("train", &fetch).await?;
    // Ready is not enough, and one is not.
    space.run_job(fetch[0], 1).await?;
    space.complete_job(fetch[1], 1).await?;
    space.counts("train", "fetch", [1, 1, 0, 1, 0]).await?;
    space.jobs_of("train", &fetch).await?;
    space.complete_job(fetch[0], 1).await?;
    space.counts("train", "workers", active(1, 0)).await?;
    space.jobs_of("train", &[&fetch[..], &["train-workers-0"]].concat()).await?;
    Ok(())
}
