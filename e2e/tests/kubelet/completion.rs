//! Normal completion with agents.

use anyhow::Result;
use jobset_harness::workload::STORY_1;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::ListParams;

use super::shared::apply;

#[tokio::test]
async fn the_jobs_succeed_and_nothing_restarts() -> Result<()> {
    let group = apply("completes", STORY_1, |workload| workload.with_env("RUN_SECONDS", "3")).await?;
    let status = group.finished().await?;
    assert_eq!(status.terminal_state, "Completed");
    assert_eq!((status.synced_epoch, status.deprecated_epoch), (1, 0));
    assert_eq!((status.restarts, status.restarts_count_towards_max, status.group_restarts), (0, 0, 0));
    let jobs: Api<Job> = Api::namespaced(group.client.clone(), &group.namespace);
    for job in jobs.list(&ListParams::default()).await?.items {
        assert_eq!(job.status.unwrap_or_default().succeeded, Some(2));
    }
    let journal = group.journal()?;
    let starts = journal.iter().filter(|entry| entry.event == "start").count();
    let exits: Vec<_> = journal.iter().filter(|entry| entry.event == "exit").map(|entry| entry.code).collect();
    assert_eq!((starts, exits), (4, vec![Some(0); 4]));
    Ok(())
}
