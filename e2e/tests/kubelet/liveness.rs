//! What a liveness probe of a worker costs: the kubelet kills the container, and with the last one the sandbox of the Pod.

use anyhow::{Context, Result};
use jobset_harness::workload::STORY_1;
use serde_json::json;

use super::shared::start;

/// Seconds until the probe fails, in each life of the worker: longer than the group needs to start.
const HANGS_AFTER: u32 = 20;

#[tokio::test]
async fn liveness_probe_beside_sidecar_restarts_in_place_with_another_address() -> Result<()> {
    let (group, before) = start("liveness-sidecar", STORY_1, |workload| {
        let mut workload = workload.of_shape(1, 1);
        workload.each_pod(|pod| {
            pod["containers"][0]["livenessProbe"] = json!({
                "httpGet": {"path": "/read?name=absent", "port": 9000},
                "initialDelaySeconds": HANGS_AFTER,
                "periodSeconds": 1,
                "failureThreshold": 1,
            });
        });
        workload
    })
    .await?;
    let after = group.runs_in_epoch(2).await?;
    let (before, after) = (before.values().next().context("no worker")?, after.values().next().context("no worker")?);
    assert_eq!((&after.uid, &after.node), (&before.uid, &before.node), "the Pod stays");
    assert_ne!(after.ip, before.ip, "docs/src/hangs.md says that the sandbox goes");
    Ok(())
}
