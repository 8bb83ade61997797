//! A worker that does not start although the barrier was lifted.

use std::collections::BTreeMap;

use anyhow::Result;
use jobset_harness::workload::SUPERVISED;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::super::shared::apply;
use super::{has_restarted, notes, says};

/// The agents beside the workers report, so the group is lifted.
#[tokio::test]
async fn lifted_worker_without_configmap_is_told_in_kubelets_words() -> Result<()> {
    let group = apply("late-worker", SUPERVISED, |workload| {
        let mut workload = workload.injected("Sidecar").of_shape(1, 2);
        workload.each_pod(|pod| {
            if let Some(env) = pod["containers"][0]["env"].as_array_mut() {
                env.push(json!({"name": "DATA", "valueFrom": {"configMapKeyRef": {"name": "data", "key": "path"}}}));
            }
        });
        workload
    })
    .await?;
    let words = ["do not run", "waits (CreateContainerConfigError: configmap \"data\" not found)"];
    notes(&group, "WorkersNotRunning", &words).await?;
    says(&group, "WorkersNotRunning", &words).await?;

    let mut data =
        ConfigMap { data: Some(BTreeMap::from([("path".to_owned(), "/data".to_owned())])), ..ConfigMap::default() };
    data.metadata.name = Some("data".to_owned());
    let maps: Api<ConfigMap> = Api::namespaced(group.client.clone(), &group.namespace);
    maps.create(&PostParams::default(), &data).await?;
    group.runs_in_epoch(1).await?;
    has_restarted(&group, 0, 0).await
}
