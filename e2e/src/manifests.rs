//! Manifests and managers of other projects, as their Go modules have them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use jobset_harness::cluster::Cluster;
use jobset_harness::images::{self, ImageSpec};
use jobset_harness::progress::progress;
use jobset_harness::{admission, install, wait};

/// User and group of the published images of managers; their Deployments ask for one that is not root.
pub(crate) const USER: &str = "65532:65532";

/// What `kubectl kustomize` makes of a folder.
pub async fn rendered(cluster: &Cluster, folder: &Path) -> Result<Vec<Value>> {
    let rendered = install::kubectl(cluster, &["kustomize", &folder.to_string_lossy()]).await?;
    admission::documents(std::str::from_utf8(&rendered.stdout)?)
}

/// The one manifest of this kind and name.
pub fn named<'a>(manifests: &'a mut [Value], kind: &str, name: &str) -> Result<&'a mut Value> {
    let mut all = manifests.iter_mut();
    all.find(|it| it["kind"] == kind && it["metadata"]["name"] == name)
        .with_context(|| format!("the manifests have no {kind} {name}"))
}

/// Has the first container of a Deployment run this image, which no registry has.
pub fn set_image(manifests: &mut [Value], deployment: &str, image: &str) -> Result<()> {
    let deployment = named(manifests, "Deployment", deployment)?;
    let container =
        deployment.pointer_mut("/spec/template/spec/containers/0").context("the Deployment has no container")?;
    container["image"] = json!(image);
    container["imagePullPolicy"] = json!("Never");
    Ok(())
}

/// Builds the image of another project's manager, as the Deployments of these projects expect it: not run as root, and called
/// `/manager`.
pub fn manager_image(name: &str, program: &Path) -> Result<PathBuf> {
    let file = program.file_name().context("the manager has no file name")?.to_string_lossy();
    images::build(&ImageSpec {
        user: USER,
        links: &[("manager", &format!("/{file}"))],
        ..ImageSpec::new(name, program)
    })
}

/// Waits until a webhook answers, by an object that is only reviewed. A ready Pod is not yet in the endpoints that every
/// kube-proxy knows.
pub async fn are_reviewed(cluster: &Cluster, whose: &str, object: &Value, limit: Duration) -> Result<()> {
    let file = cluster.dir().join("probe.json");
    std::fs::write(&file, object.to_string())?;
    let file = file.to_string_lossy();
    wait::until(limit, format!("{whose}'s webhook to answer"), || async {
        install::kubectl(cluster, &["create", "--dry-run=server", "-f", &file]).await.map(Some)
    })
    .await?;
    progress(&format!("{whose} serves"));
    Ok(())
}

/// Applies the manifests; what another installation owns changes hands. `name` is the file's, in the cluster's folder.
pub async fn apply(cluster: &Cluster, name: &str, manifests: &[Value]) -> Result<()> {
    let file = admission::write(cluster, name, manifests)?;
    install::kubectl(cluster, &["apply", "--server-side", "--force-conflicts", "-f", &file]).await.map(drop)
}
