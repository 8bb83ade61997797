//! Installs the product into a cluster, as its users do: images, then `kubectl apply -k deploy/kustomize`.

use std::path::Path;
use std::process::Output;

use anyhow::{Result, bail};

use crate::cluster::Cluster;
use crate::images::{self, ImageSpec};
use crate::paths;
use crate::programs::RustBinaries;
use crate::progress::progress;

/// Image of the agent.
pub const AGENT_IMAGE: &str = "localhost/jobset-agent:dev";
/// Image of the test worker.
pub const WORKER_IMAGE: &str = "localhost/jobset-test-worker:dev";

const CONTROLLER_IMAGE: &str = "localhost/jobset-controller:dev";
const WEBHOOK_IMAGE: &str = "localhost/jobset-webhook:dev";
const LIMIT: &str = "--timeout=120s";

/// Loads the images, applies the manifests, and waits until controller and webhook are ready.
///
/// # Errors
/// If anything is refused, or not ready in time; the text has what `kubectl` said.
pub async fn install(cluster: &Cluster, binaries: &RustBinaries) -> Result<()> {
    progress("loading images");
    let images: [(&str, &Path); 4] = [
        (AGENT_IMAGE, &binaries.agent),
        (CONTROLLER_IMAGE, &binaries.controller),
        (WEBHOOK_IMAGE, &binaries.webhook),
        (WORKER_IMAGE, &binaries.worker),
    ];
    for (name, binary) in images {
        cluster.load_image(&images::build(&ImageSpec::new(name, binary))?).await?;
    }
    progress("installing deploy/kustomize");
    let kustomize = paths::workspace().join("deploy/kustomize");
    let kustomize = kustomize.to_string_lossy();
    kubectl(cluster, &["apply", "--server-side", "-k", &kustomize]).await?;
    for deployment in ["deployment/jobset-controller", "deployment/jobset-webhook"] {
        kubectl(cluster, &["rollout", "status", deployment, "-n", "jobset-system", LIMIT]).await?;
    }
    progress("controller and webhook are ready");
    Ok(())
}

/// Creates a namespace whose Pods may run agents.
///
/// # Errors
/// If the API server refuses it.
pub async fn namespace(cluster: &Cluster, name: &str) -> Result<()> {
    kubectl(cluster, &["create", "namespace", name]).await?;
    let subject = format!("--serviceaccount={name}:default");
    let binding = ["create", "rolebinding", "jobset-agent", "--clusterrole=jobset-agent", &subject, "-n", name];
    kubectl(cluster, &binding).await?;
    // A Pod that comes before its namespace's ServiceAccount is refused.
    kubectl(cluster, &["wait", "--for=create", "serviceaccount/default", "-n", name, LIMIT]).await?;
    Ok(())
}

/// Runs `kubectl`, which must succeed.
///
/// # Errors
/// If it does not; the text has what it said.
pub async fn kubectl(cluster: &Cluster, args: &[&str]) -> Result<Output> {
    let output = cluster.kubectl(args).await?;
    if !output.status.success() {
        bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output)
}
