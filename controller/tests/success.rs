//! The success policy: when a JobSet has completed, and what becomes of what still runs.

use anyhow::Result;
use jobset_api::conditions;
use serde_json::json;

use crate::fixture::Space;
use crate::jobsets::{feature, group, jobset, with};
use crate::outcome::restarts;

impl Space {
    /// Asserts that the JobSet completes, and waits until of its Jobs only these are left.
    async fn completes_keeping(&self, jobset: &str, jobs: &[&str]) -> Result<()> {
        let condition = self.condition(jobset, "Completed", "True").await?;
        assert_eq!(condition.reason, "AllJobsCompleted");
        assert_eq!(condition.message, "jobset completed successfully");
        let status = self.status_once(jobset, "a terminal state", |status| !status.terminal_state.is_empty()).await?;
        assert_eq!(status.terminal_state, "Completed");
        assert!(!conditions::is_true(&status.conditions, conditions::FAILED));
        assert_eq!(restarts(&status), (0, 0, 0));
        self.jobs_of(jobset, jobs).await?;
        Ok(())
    }

    /// Waits until the JobSet counts a replicatedJob as [`Space::counts`] says, and asserts that it goes on: the write that
    /// counts so would be the one that ends it.
    async fn goes_on_with(&self, jobset: &str, replicated_job: &str, counted: [i32; 5]) -> Result<()> {
        let status = self.counts(jobset, replicated_job, counted).await?;
        assert_eq!(status.terminal_state, "");
        assert!(conditions::terminal(&status.conditions).is_none());
        Ok(())
    }
}

#[tokio::test]
async fn without_a_policy_a_jobset_completes_with_the_last_of_its_jobs() -> Result<()> {
    let space = Space::new("success-default").await?;
    space.create(jobset("train", &[group("driver", 1, 1), group("workers", 2, 2)])).await?;
    space.complete_job("train-driver-0", 1).await?;
    space.complete_job("train-workers-1", 2).await?;
    space.goes_on_with("train", "driver", [0, 0, 0, 1, 0]).await?;
    space.goes_on_with("train", "workers", [1, 0, 0, 1, 0]).await?;
    space.complete_job("train-workers-0", 2).await?;
    // What has completed is kept, to be read.
    space.completes_keeping("train", &["train-driver-0", "train-workers-0", "train-workers-1"]).await
}

#[tokio::test]
async fn all_of_a_target_completes_the_jobset_and_deletes_what_still_runs() -> Result<()> {
    let space = Space::new("success-all").await?;
    let policy = json!({"spec": {"successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]}}});
    space.create(with(jobset("train", &[group("monitor", 1, 1), group("workers", 2, 1)]), &policy)).await?;
    space.complete_job("train-workers-0", 1).await?;
    space.goes_on_with("train", "workers", [1, 0, 0, 1, 0]).await?;
    space.complete_job("train-workers-1", 1).await?;
    space.completes_keeping("train", &["train-workers-0", "train-workers-1"]).await?;
    space.pods_of("train-monitor-0", 0).await?;
    Ok(())
}

#[tokio::test]
async fn any_of_a_target_completes_the_jobset_and_others_do_not_count() -> Result<()> {
    let space = Space::new("success-any").await?;
    space.create(feature("success-policy-any")?).await?;
    space.complete_job("success-policy-any-monitor-0", 1).await?;
    space.goes_on_with("success-policy-any", "monitor", [0, 0, 0, 1, 0]).await?;
    space.complete_job("success-policy-any-search-1", 1).await?;
    let kept = ["success-policy-any-monitor-0", "success-policy-any-search-1"];
    space.completes_keeping("success-policy-any", &kept).await?;
    space.pods_of("success-policy-any-search-0", 0).await?;
    Ok(())
}

#[tokio::test]
async fn without_targets_any_job_completes_the_jobset() -> Result<()> {
    let space = Space::new("success-any-at-all").await?;
    let policy = json!({"spec": {"successPolicy": {"operator": "Any"}}});
    space.create(with(jobset("train", &[group("driver", 1, 1), group("workers", 1, 1)]), &policy)).await?;
    space.complete_job("train-driver-0", 1).await?;
    space.completes_keeping("train", &["train-driver-0"]).await
}
