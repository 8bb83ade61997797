//! What `kubectl jobset explain` says of a JobSet in a queue.

use anyhow::{Result, ensure};
use jobset_harness::group::LIMIT;
use jobset_harness::progress::progress;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::SUPERVISED;

use super::queue;
use crate::kubelet::run_kubectl_jobset;

#[tokio::test]
#[ignore = "five minutes: make clients"]
async fn queued_jobset_is_explained_and_runs_with_quota() -> Result<()> {
    let cluster = queue::cluster().await?;
    queue::set_quota(&cluster, [0, 0]).await?;
    let group = queue::apply(&cluster, "queued", SUPERVISED, |it| it).await?;
    let explain = ["explain", &group.name, "-n", &group.namespace];
    wait::until_met(LIMIT, "the queue to be named", || async {
        let (text, code) = run_kubectl_jobset(&cluster, &explain).await?;
        let is_met = code == Some(1)
            && text.contains("waits in Kueue's queue main")
            && text.contains("kubectl describe workloads");
        Ok(if is_met { Check::Met(()) } else { Check::Unmet(text) })
    })
    .await?;
    progress("the queue is named");
    queue::set_quota(&cluster, [2, 0]).await?;
    group.runs_in_epoch(1).await?;
    let (text, code) = run_kubectl_jobset(&cluster, &explain).await?;
    ensure!(code == Some(0), "{text}");
    cluster.stop().await
}
