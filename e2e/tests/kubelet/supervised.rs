//! The agent as the supervisor of its worker: restarts without the kubelet, and what is left to it.

use std::collections::BTreeMap;

use anyhow::Result;
use jobset_harness::group::Group;
use jobset_harness::workload::SUPERVISED;
use kube::ResourceExt;

use super::shared::{assert_in_place, start_unchanged};

/// Name of each Pod, with the worker's container and how often the kubelet has restarted it.
async fn containers(group: &Group) -> Result<BTreeMap<String, (String, i32)>> {
    let pods = group.live_pods().await?;
    let container = |pod: &k8s_openapi::api::core::v1::Pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let worker = statuses.and_then(|statuses| statuses.first()).cloned().unwrap_or_default();
        (pod.name_any(), (worker.container_id.unwrap_or_default(), worker.restart_count))
    };
    Ok(pods.iter().map(container).collect())
}

#[tokio::test]
async fn supervised_worker_fails_container_keeps_running() -> Result<()> {
    let (group, mut before, first) = start_unchanged("supervised", SUPERVISED).await?;
    let containers_before = containers(&group).await?;
    for (failure, code) in [1, 137, 2].into_iter().enumerate() {
        group.exit(&first, code).await?;
        let after = group.runs_in_epoch(i32::try_from(failure)? + 2).await?;
        assert_in_place(&before, &after);
        before = after;
    }
    assert_eq!(containers(&group).await?, containers_before, "no container was restarted");
    let status = group.status().await?;
    assert_eq!((status.restarts_count_towards_max, status.group_restarts, status.restarts), (3, 3, 0));
    Ok(())
}
