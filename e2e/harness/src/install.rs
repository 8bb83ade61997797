//! Installs the product into a cluster, as its users do: images, then `kubectl apply -k deploy/kustomize`.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::timeout;

use crate::chart::{Chart, RELEASE};
use crate::cluster::{Cluster, Handle};
use crate::images::{self, ImageSpec, Repository};
use crate::paths;
use crate::programs::{Architecture, Helm, RustBinaries, succeeded};
use crate::progress::progress;
use crate::wait;

pub const AGENT_IMAGE: &str = "localhost/jobset-agent:dev";
pub const WORKER_IMAGE: &str = "localhost/jobset-test-worker:dev";

/// Name of the relays' program, Deployment and Service.
pub const RELAY: &str = "jobset-relay";

pub const NAMESPACE: &str = "jobset-system";

pub const CRD: &str = "jobsets.jobset.x-k8s.io";
/// How long one thing may take to come up.
pub const LIMIT: Duration = Duration::from_mins(2);
/// How long a Deployment may take. Managers of Kueue and Trainer look for their certificates less and less often: a kubelet that brings
/// the Secret after a minute and a half may wait for the look after four.
const ROLLOUT_LIMIT: Duration = Duration::from_mins(6);

/// Loads the images, applies the manifests, and waits until controller, webhook and relays are ready.
pub async fn install(cluster: &Cluster, binaries: &RustBinaries) -> Result<()> {
    load_images(cluster, binaries).await?;
    progress("installing deploy/kustomize");
    let kustomize = paths::workspace().join("deploy/kustomize");
    let kustomize = kustomize.to_string_lossy();
    kubectl(cluster, &["apply", "--server-side", "-k", &kustomize]).await?;
    ready(cluster, NAMESPACE).await
}

/// Installs the chart instead, with these arguments of Helm.
pub async fn install_chart(cluster: &Cluster, binaries: &RustBinaries, args: &[&str]) -> Result<()> {
    load_images(cluster, binaries).await?;
    progress(&format!("installing deploy/chart {}", args.join(" ")));
    let chart = Chart::folder();
    let chart = chart.to_string_lossy();
    let release =
        ["install", RELEASE, &chart, "--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout", "2m"];
    Chart::new(Helm::V4).await?.run(cluster, &[&release[..], args].concat()).await.map(drop)
}

/// Installs the chart with the agent stream switched off.
pub async fn install_without_stream(cluster: &Cluster, binaries: &RustBinaries) -> Result<()> {
    install_chart(cluster, binaries, &["--set", "stream.enabled=false"]).await
}

/// Loads the images of the product, and of the worker of the tests.
pub async fn load_images(cluster: &Cluster, binaries: &RustBinaries) -> Result<()> {
    progress("loading images");
    load_product_images(cluster, binaries, &Repository::default()).await?;
    cluster.load_image(&images::build(&ImageSpec::new(WORKER_IMAGE, &binaries.worker))?).await?;
    Ok(())
}

/// Loads the images of the product alone, by these names.
pub async fn load_product_images(cluster: &Cluster, binaries: &RustBinaries, names: &Repository) -> Result<()> {
    for image in product_images(binaries, Architecture::of_host()?, names)? {
        cluster.load_image(&image).await?;
    }
    Ok(())
}

/// Builds the image of the demo's worker, as an OCI archive below `target/images`.
pub fn worker_image(binaries: &RustBinaries, architecture: Architecture, names: &Repository) -> Result<PathBuf> {
    let name = names.name("jobset-test-worker");
    images::build(&ImageSpec { architecture: Some(architecture), ..ImageSpec::product(&name, &binaries.worker) })
}

/// Builds the images of the product, as OCI archives below `target/images`.
pub fn product_images(binaries: &RustBinaries, architecture: Architecture, names: &Repository) -> Result<Vec<PathBuf>> {
    let programs: [(&str, &Path); 5] = [
        ("jobset-agent", &binaries.agent),
        ("jobset-controller", &binaries.controller),
        ("jobset-webhook", &binaries.webhook),
        ("jobset-certs", &binaries.certs),
        (RELAY, &binaries.relay),
    ];
    let build = |(program, binary)| {
        let name = names.name(program);
        images::build(&ImageSpec { architecture: Some(architecture), ..ImageSpec::product(&name, binary) })
    };
    programs.into_iter().map(build).collect()
}

/// Waits until controller, webhook and relays are ready.
pub async fn ready(cluster: &Cluster, namespace: &str) -> Result<()> {
    for deployment in ["jobset-controller", "jobset-webhook", RELAY] {
        rolled_out(cluster, namespace, deployment).await?;
    }
    progress("controller, webhook and relays are ready");
    Ok(())
}

/// Waits until all replicas of a Deployment are ready.
pub async fn rolled_out(cluster: &Cluster, namespace: &str, deployment: &str) -> Result<()> {
    let limit = format!("--timeout={}s", ROLLOUT_LIMIT.as_secs());
    let deployment = format!("deployment/{deployment}");
    kubectl(cluster, &["rollout", "status", &deployment, "-n", namespace, &limit]).await?;
    Ok(())
}

/// Applies the CustomResourceDefinition alone, and waits until its API is served.
pub async fn crd(handle: &Handle) -> Result<()> {
    let crds = paths::workspace().join("deploy/crds");
    kubectl(handle, &["apply", "--server-side", "-k", &crds.to_string_lossy()]).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(handle.client());
    let established = await_condition(crds, CRD, conditions::is_crd_established());
    timeout(LIMIT, established).await.context("the CRD was not established in time")??;
    Ok(())
}

/// Creates a namespace whose Pods may run agents.
pub async fn create_namespace(client: &Client, name: &str) -> Result<()> {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &namespace).await.with_context(|| format!("cannot create {name}"))?;
    let binding = json!({
        "metadata": {"name": "jobset-agent"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jobset-agent"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": name}],
    });
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), name);
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await.context("cannot bind agents")?;
    // A Pod that comes before its namespace's ServiceAccount is rejected.
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    wait::until(LIMIT, format!("the ServiceAccount of {name}"), || async {
        Ok(accounts.get_opt("default").await?.map(|_| ()))
    })
    .await
}

/// Runs `kubectl`, which must succeed.
pub async fn kubectl(handle: &Handle, args: &[&str]) -> Result<Output> {
    let output = handle.kubectl(args).await?;
    succeeded(format_args!("kubectl {}", args.join(" ")), &output)?;
    Ok(output)
}
