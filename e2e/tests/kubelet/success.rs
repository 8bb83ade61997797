//! A success is final: followers that fail for want of their leader restart nothing.

use anyhow::{Context, Result};
use jobset_harness::group::LIMIT;
use jobset_harness::wait;
use jobset_harness::workload::SUPERVISED;
use rstest::rstest;
use serde_json::json;

use super::shared::start;

/// The followers fail at the moment in which the leader has ended. The Job controller judges a little later.
#[rstest]
#[case::sidecar("success-sidecar", "Sidecar")]
#[case::supervisor("success-supervisor", "Supervisor")]
#[tokio::test]
async fn followers_fail_after_leader_succeeded_completes_jobset(
    #[case] namespace: &str,
    #[case] shape: &str,
) -> Result<()> {
    let (group, workers) = start(namespace, SUPERVISED, |workload| {
        let mut workload = workload.injected(shape).of_shape(1, 3).with_max_restarts(0);
        workload.0["spec"]["replicatedJobs"][0]["template"]["spec"]["successPolicy"] =
            json!({"rules": [{"succeededIndexes": "0"}]});
        workload
    })
    .await?;
    let mut workers = workers.values();
    let leader = workers.next().context("no leader")?;
    group.exit(leader, 0).await?;
    wait::until(LIMIT, format!("the end of the worker of {}", leader.pod), || async {
        let status = group.pods.get_status(&leader.pod).await?.status.unwrap_or_default();
        let ended = status
            .container_statuses
            .iter()
            .flatten()
            .any(|it| it.state.as_ref().and_then(|state| state.terminated.as_ref()).is_some());
        Ok(ended.then_some(()))
    })
    .await?;
    for follower in workers {
        // The Job controller may have deleted it already.
        let _ = group.exit(follower, 1).await;
    }
    let status = group.finished().await?;
    assert_eq!((status.terminal_state.as_str(), status.group_restarts), ("Completed", 0), "{status:?}");
    Ok(())
}
