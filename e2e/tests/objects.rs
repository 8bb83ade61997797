//! Small objects and questions that several tests need.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use jobset_harness::Cluster;
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, PostParams};

/// How long a Pod may take to run, on a machine that is busy.
const POD_LIMIT: Duration = Duration::from_mins(4);

pub(crate) async fn create<K>(api: &Api<K>, object: serde_json::Value) -> Result<K>
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object = serde_json::from_value(object).context("not such an object")?;
    api.create(&PostParams::default(), &object).await.context("creating an object")
}

/// Creates a JobSet in the namespace `default`. The API server rejects unknown fields.
pub(crate) async fn create_strict(client: &Client, jobset: &serde_json::Value) -> kube::Result<serde_json::Value> {
    let request =
        http::Request::post("/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets?fieldValidation=Strict");
    let request = request.header("content-type", "application/json").body(jobset.to_string().into_bytes());
    client.request(request.map_err(kube::Error::HttpError)?).await
}

/// Waits until a Pod's containers run.
pub(crate) async fn running(pods: &Api<Pod>, name: &str) -> Result<Pod> {
    wait::until_met(POD_LIMIT, format!("the Pod {name} to run"), || async {
        let pod = pods.get(name).await.context("getting the Pod")?;
        let status = pod.status.clone().unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let runs = |state: &k8s_openapi::api::core::v1::ContainerState| state.running.is_some();
        if !containers.is_empty() && containers.iter().all(|container| container.state.as_ref().is_some_and(runs)) {
            return Ok(Check::Met(pod));
        }
        Ok(Check::Unmet(format!("phase {:?}, containers {:?}", status.phase, containers)))
    })
    .await
}

/// Runs a shell command in a Pod and returns what it printed.
pub(crate) async fn shell(cluster: &Cluster, namespace: &str, pod: &str, command: &str) -> Result<String> {
    let output = cluster.kubectl(["--namespace", namespace, "exec", pod, "--", "sh", "-c", command]).await?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("`{command}` in {pod}: {}; {stdout}; {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(stdout)
}
