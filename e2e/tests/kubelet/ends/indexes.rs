//! An index that fails for good while its Job goes on: a group cannot run without it.

use anyhow::{Context, Result, ensure};
use jobset_harness::group::LIMIT;
use jobset_harness::wait;
use jobset_harness::workload::SUPERVISED;
use serde_json::json;

use super::super::shared::start;
use super::has_restarted;

const FATAL: u8 = 42;

#[tokio::test]
async fn index_fails_for_good_group_is_recreated() -> Result<()> {
    let (group, before) = start("fail-index", SUPERVISED, |workload| {
        let mut workload = workload.injected("Sidecar").of_shape(1, 3);
        let job = &mut workload.0["spec"]["replicatedJobs"][0]["template"]["spec"];
        job["podFailurePolicy"]["rules"][0]["action"] = json!("FailIndex");
        job["backoffLimitPerIndex"] = json!(i32::MAX);
        workload
    })
    .await?;
    let second = before.values().nth(1).context("no second worker")?;
    group.exit(second, FATAL).await?;
    wait::until(LIMIT, "the group to run in new Pods", || async {
        let workers = group.workers().await?;
        let is_new = workers.values().all(|worker| worker.starts > 0 && before.values().all(|it| it.uid != worker.uid));
        Ok((is_new && workers.len() == before.len()).then_some(()))
    })
    .await?;
    has_restarted(&group, 1, 1).await?;
    let status = group.status().await?;
    let message = status.recent_restarts.last().map(|last| last.message.clone()).unwrap_or_default();
    ensure!(message.contains(&second.pod) && message.contains("42"), "{message:?}");
    Ok(())
}
