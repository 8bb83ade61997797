//! Pods with an injected agent in namespaces with a ResourceQuota of limits, and with a LimitRange, on a real API server.

use anyhow::{Context as _, Result};
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::core::v1::{LimitRange, Pod, PodSpec, ResourceQuota, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::cluster::{LIMIT, Plane};
use crate::injection::{SHAPES, plain};

/// Namespace with a quota of requests and limits.
const QUOTA: &str = "quota";
/// Namespace in which a container has to request more than an agent does by default.
const RANGE: &str = "range";

const BURSTABLE: &str = r#"{"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}"#;
const GUARANTEED: &str = r#"{"limits": {"cpu": "1", "memory": "1Gi"}}"#;

#[tokio::test]
async fn injected_pods_meet_resource_quota_and_limit_range() -> Result<()> {
    let plane = Plane::start().await?;
    prepare(&plane).await?;

    let replica = plane.admission().await?;
    for shape in SHAPES {
        for worker in [BURSTABLE, GUARANTEED] {
            let pod = injected(&plane, shape, worker).await?;
            assert_eq!(answer(&plane, QUOTA, &pod).await?, "", "{shape}, {worker}");
        }
        let refused = answer(&plane, RANGE, &injected(&plane, shape, BURSTABLE).await?).await?;
        assert!(refused.contains("minimum cpu usage per Container is 50m, but request is 10m"), "{shape}: {refused}");
    }
    replica.stop().await?;

    let replica = plane.admission_with(&["--agent-requests=cpu=50m,memory=32Mi"]).await?;
    for shape in SHAPES {
        for worker in [BURSTABLE, GUARANTEED] {
            let pod = injected(&plane, shape, worker).await?;
            assert_eq!(answer(&plane, RANGE, &pod).await?, "", "{shape}, {worker}");
        }
    }
    replica.stop().await?;

    let replica = plane.admission_with(&["--agent-limits="]).await?;
    for (shape, container) in SHAPES.into_iter().zip(["jobset-agent", "jobset-agent-install"]) {
        let refused = answer(&plane, QUOTA, &injected(&plane, shape, BURSTABLE).await?).await?;
        assert!(refused.contains(&format!("must specify limits.cpu for: {container};")), "{shape}: {refused}");
        let pod = injected(&plane, shape, GUARANTEED).await?;
        assert_eq!(answer(&plane, QUOTA, &pod).await?, "", "the class stays: {shape}");
    }
    plane.end(replica).await
}

/// The namespaces, once the API server enforces their quota and range.
async fn prepare(plane: &Plane) -> Result<()> {
    for namespace in [QUOTA, RANGE] {
        plane.kubectl(&["create", "namespace", namespace]).await?;
    }
    let quota = json!({ "metadata": { "name": "all" }, "spec": { "hard": {
        "requests.cpu": "100", "requests.memory": "100Gi", "limits.cpu": "100", "limits.memory": "100Gi" } } });
    let quotas: Api<ResourceQuota> = Api::namespaced(plane.client(), QUOTA);
    quotas.create(&PostParams::default(), &serde_json::from_value(quota)?).await?;
    let range = json!({ "metadata": { "name": "all" }, "spec": { "limits": [
        { "type": "Container", "min": { "cpu": "50m", "memory": "32Mi" } }] } });
    let ranges: Api<LimitRange> = Api::namespaced(plane.client(), RANGE);
    ranges.create(&PostParams::default(), &serde_json::from_value(range)?).await?;

    let pod = json!({ "containers": [{ "name": "worker", "image": "worker:1", "resources": { "requests": { "cpu": "1m" } } }] });
    let pod: PodSpec = serde_json::from_value(pod)?;
    for (namespace, refusal) in [(QUOTA, "must specify limits.cpu"), (RANGE, "minimum cpu usage")] {
        wait::until_met(LIMIT, format!("what is enforced in {namespace}"), async || {
            let accounts: Api<ServiceAccount> = Api::namespaced(plane.client(), namespace);
            let answer = answer(plane, namespace, &pod).await?;
            let is_ready = accounts.get_opt("default").await?.is_some() && answer.contains(refusal);
            Ok(if is_ready { Check::Met(()) } else { Check::Unmet(answer) })
        })
        .await?;
    }
    Ok(())
}

/// A Pod of an admitted JobSet whose containers, without those of the agent, have these resources.
async fn injected(plane: &Plane, shape: &str, resources: &str) -> Result<PodSpec> {
    let (mut manifest, resources): (_, Value) = (plain("resources", shape), serde_json::from_str(resources)?);
    for list in ["initContainers", "containers"] {
        let container = format!("/spec/replicatedJobs/0/template/spec/template/spec/{list}/0");
        manifest.pointer_mut(&container).context("no container")?["resources"] = resources.clone();
    }
    let template = plane.dry_run(&manifest).await?.spec.replicated_jobs[0].template.spec.template.clone();
    template.spec.context("no Pod")
}

/// Why the API server refuses to create such a Pod; empty if it does not.
async fn answer(plane: &Plane, namespace: &str, spec: &PodSpec) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(plane.client(), namespace);
    let pod = json!({ "metadata": { "generateName": "pod-" }, "spec": spec });
    match pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await {
        Ok(_) => Ok(String::new()),
        Err(kube::Error::Api(status)) => Ok(status.message),
        Err(error) => Err(error.into()),
    }
}
