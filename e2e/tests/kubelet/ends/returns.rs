//! A sidecar that cannot start a second time in one Pod: that Pod is replaced, and the others keep theirs.

use anyhow::{Context, Result};
use jobset_harness::images;
use jobset_harness::workload::{SUPERVISED, Workload};
use serde_json::{Value, json};

use super::super::shared::{assert_replaced, start};
use super::{has_restarted, notes};

/// The first index has a driver that fails once its folder has been used.
const DRIVER: &str =
    "[ $JOB_COMPLETION_INDEX = 0 ] && [ -e /driver/ran ] && exit 1; touch /driver/ran; exec sleep 100000";

/// Adds the driver before or after the agent.
fn with_driver(workload: Workload, before_agent: bool) -> Workload {
    let mut workload = workload.injected("Sidecar").of_shape(1, 3);
    workload.each_pod(|pod| {
        let driver = json!({
            "name": "driver", "image": images::BUSYBOX, "restartPolicy": "Always", "args": ["-c", DRIVER],
            "volumeMounts": [{"name": "driver", "mountPath": "/driver"}],
            "startupProbe": {"exec": {"command": ["test", "-e", "/driver/ran"]}, "periodSeconds": 1, "failureThreshold": 100_000},
        });
        // Admission adds the agent as the first one, and completes one that is there.
        let agent = before_agent.then(|| json!({"name": "jobset-agent"}));
        pod["initContainers"] = [driver].into_iter().chain(agent).collect::<Value>();
        if let Some(volumes) = pod["volumes"].as_array_mut() {
            volumes.push(json!({"name": "driver", "emptyDir": {}}));
        }
    });
    workload
}

#[tokio::test]
async fn sidecar_before_agent_cannot_start_again_its_pod_is_replaced() -> Result<()> {
    let (group, before) = start("driver-first", SUPERVISED, |workload| with_driver(workload, true)).await?;
    let first = before.values().next().context("no worker")?;
    group.exit(first, 1).await?;
    assert_replaced(&before, first, group.runs_in_epoch(2).await?)?;
    notes(&group, "PodReplaced", &[&first.pod, "driver"]).await?;
    has_restarted(&group, 1, 1).await
}

/// The agent has reported, and the group is lifted; the worker beside that sidecar never runs.
#[tokio::test]
async fn sidecar_that_cannot_restart_has_pod_replaced_uncounted() -> Result<()> {
    let (group, before) = start("driver-last", SUPERVISED, |workload| with_driver(workload, false)).await?;
    let first = before.values().next().context("no worker")?;
    group.exit(first, 1).await?;
    let after = group.runs_in_epoch(3).await?;
    let kept = after.iter().filter(|(slot, worker)| before[*slot].uid == worker.uid).count();
    assert_eq!(kept, before.len() - 1, "{before:?} {after:?}");
    notes(&group, "PodReplaced", &[&first.pod, "driver"]).await?;
    has_restarted(&group, 1, 1).await
}
