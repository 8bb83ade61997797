//! Suspend and resume: Pods go and come back, and nothing of it is a failure.

use anyhow::Result;
use jobset_api::JobSetStatus;
use kube::ResourceExt;
use serde_json::json;

use crate::expect::uids;
use crate::fixture::{Space, in_place, next};
use crate::jobsets::{feature, group, jobset, with};
use crate::outcome::restarts;

fn assert_nothing_failed(status: &JobSetStatus) {
    assert_eq!(restarts(status), (0, 0, 0));
    assert_eq!(status.terminal_state, "");
}

#[tokio::test]
async fn created_suspended_it_has_its_jobs_and_no_pods_until_it_is_resumed() -> Result<()> {
    let space = Space::new("suspended").await?;
    space.create(feature("suspended")?).await?;
    let condition = space.condition("suspended", "Suspended", "True").await?;
    assert_eq!((&*condition.reason, &*condition.message), ("SuspendedJobs", "jobset is suspended"));
    space.counts("suspended", "driver", [0, 0, 1, 0, 0]).await?;
    space.counts("suspended", "workers", [0, 0, 2, 0, 0]).await?;
    let names = ["suspended-driver-0", "suspended-workers-0", "suspended-workers-1"];
    let before = space.jobs_of("suspended", &names).await?;
    space.settle().await?;
    for job in &before {
        // They were made so, and not stopped afterwards.
        assert_eq!(job.spec.as_ref().and_then(|spec| spec.suspend), Some(true));
        assert_eq!(space.jobs().get(&job.name_any()).await?.metadata.generation, Some(1));
    }
    space.pods("suspended", 0, "0").await?;

    space.suspend("suspended", false).await?;
    let condition = space.condition("suspended", "Suspended", "False").await?;
    assert_eq!((&*condition.reason, &*condition.message), ("ResumeJobs", "jobset is resumed"));
    space.pods("suspended", 5, "0").await?;
    let after = space.jobs_of("suspended", &names).await?;
    assert_eq!(uids(&before), uids(&after), "the same Jobs");
    assert_nothing_failed(&space.counts("suspended", "workers", [2, 0, 0, 0, 0]).await?);
    Ok(())
}

#[tokio::test]
async fn suspended_while_it_runs_its_pods_go_and_what_has_completed_stays_completed() -> Result<()> {
    let space = Space::new("suspend-running").await?;
    let policy = json!({"spec": {"failurePolicy": {"maxRestarts": 0}}});
    space.create(with(jobset("train", &[group("done", 1, 1), group("workers", 2, 2)]), &policy)).await?;
    space.complete_job("train-done-0", 1).await?;
    space.run_job("train-workers-0", 2).await?;
    space.run_job("train-workers-1", 2).await?;
    space.counts("train", "done", [0, 0, 0, 1, 0]).await?;
    let status = space.counts("train", "workers", [2, 2, 0, 0, 0]).await?;
    assert!(status.conditions.is_empty(), "one that never was suspended does not say so: {:?}", status.conditions);

    for _ in 1..=2 {
        space.suspend("train", true).await?;
        space.pods_of("train-workers-0", 0).await?;
        space.pods_of("train-workers-1", 0).await?;
        space.condition("train", "Suspended", "True").await?;
        space.counts("train", "done", [0, 0, 0, 1, 0]).await?;
        assert_nothing_failed(&space.counts("train", "workers", [0, 0, 2, 0, 0]).await?);

        space.suspend("train", false).await?;
        space.run_job("train-workers-0", 2).await?;
        space.run_job("train-workers-1", 2).await?;
        space.condition("train", "Suspended", "False").await?;
        assert_nothing_failed(&space.counts("train", "workers", [2, 2, 0, 0, 0]).await?);
    }
    Ok(())
}

#[tokio::test]
async fn resumed_in_place_the_group_advances_to_an_epoch_that_is_not_counted() -> Result<()> {
    let space = Space::new("suspend-in-place").await?;
    space.create(in_place("train", 2, 0)).await?;
    for epoch in ["1", "2"] {
        let pods = space.pods("train", 2, "0").await?;
        for pod in &pods {
            space.report(pod, epoch).await?;
        }
        let mut history = space.history("train").await?;
        while next(&mut history).await?.status.is_none_or(|status| status.synced_epoch.to_string() != epoch) {}
        for pod in &pods {
            space.run(pod).await?;
        }
        let status = space.counts("train", "workers", [1, 1, 0, 0, 0]).await?;
        assert_nothing_failed(&status);
        if epoch == "1" {
            space.suspend("train", true).await?;
            space.pods("train", 0, "0").await?;
            space.counts("train", "workers", [0, 0, 1, 0, 0]).await?;
            space.suspend("train", false).await?;
        }
    }
    Ok(())
}
