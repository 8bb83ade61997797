//! A dead admission service stops no running job: KEP-467 asks for workers that recover, whatever else is broken.

use anyhow::{Context, Result};
use jobset_harness::group::{Group, LIMIT, Workers};
use jobset_harness::install::kubectl;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{STORY_1, is_ready};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use super::shared::{assert_in_place, installed, start, without_admission};

const NAMESPACE: &str = "jobset-system";
const WEBHOOK: &str = "deployment/jobset-webhook";

#[tokio::test]
async fn webhook_scaled_to_zero_restarts_in_place_go_on() -> Result<()> {
    let (group, before) = start("no-webhook", STORY_1, |workload| workload.of_shape(1, 2)).await?;
    let cluster = installed().await?;
    let _alone = without_admission().await;
    kubectl(cluster, &["scale", WEBHOOK, "--replicas=0", "-n", NAMESPACE]).await?;
    let result = restarts_and_is_recreated(&group, &before).await;
    // For the other tests, whatever became of this one.
    kubectl(cluster, &["scale", WEBHOOK, "--replicas=2", "-n", NAMESPACE]).await?;
    kubectl(cluster, &["rollout", "status", WEBHOOK, "-n", NAMESPACE, "--timeout=120s"]).await?;
    result
}

async fn restarts_and_is_recreated(group: &Group, before: &Workers) -> Result<()> {
    webhooks_are_gone(group).await?;
    let manifest = group.jobsets.get(&group.name).await?;
    let mut other = manifest.clone();
    other.metadata = kube::api::ObjectMeta { name: Some("other".to_owned()), ..Default::default() };
    let refused = group.jobsets.create(&PostParams::default(), &other).await.err().context("nobody reviews it")?;
    assert!(refused.to_string().contains("failed calling webhook"), "{refused}");

    let first = before.values().next().context("no worker")?;
    group.exit(first, 1).await?;
    let after = group.runs_in_epoch(2).await?;
    assert_in_place(before, &after);

    // A Pod of the JobSet, and one that has nothing to do with it.
    let last = after.values().last().context("no worker")?;
    group.pods.delete(&last.pod, &DeleteParams::default()).await?;
    group.runs_in_epoch(3).await?;
    plain_pod_runs(group).await
}

async fn webhooks_are_gone(group: &Group) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(group.client.clone(), NAMESPACE);
    let webhooks = ListParams::default().labels("app.kubernetes.io/name=jobset-webhook");
    wait::until_met(LIMIT, "all Pods of the webhook to be gone", async || {
        let left = pods.list(&webhooks).await?.items.len();
        Ok(if left == 0 { Check::Met(()) } else { Check::Unmet(format!("{left} left")) })
    })
    .await
}

async fn plain_pod_runs(group: &Group) -> Result<()> {
    // The worker of the JobSet as a Pod of its own, without an agent.
    let worker = group.live_pods().await?.into_iter().next().context("no Pod")?;
    let mut container = worker.spec.and_then(|spec| spec.containers.into_iter().next()).context("no container")?;
    let own = ["journal", "scratch"];
    container.volume_mounts.iter_mut().for_each(|mounts| mounts.retain(|mount| own.contains(&mount.name.as_str())));
    let plain: Pod = serde_json::from_value(json!({ "metadata": { "name": "plain" }, "spec": {
        "containers": [container], "terminationGracePeriodSeconds": 0,
        "volumes": own.map(|name| json!({ "name": name, "emptyDir": {} })),
    } }))?;
    group.pods.create(&PostParams::default(), &plain).await?;
    wait::until_met(LIMIT, "a plain Pod to run", async || {
        let pod = group.pods.get("plain").await?;
        Ok(if is_ready(&pod) { Check::Met(()) } else { Check::Unmet(format!("{:?}", pod.status)) })
    })
    .await
}
