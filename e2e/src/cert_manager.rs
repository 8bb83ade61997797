//! cert-manager in a test cluster: its own chart, and controller, cainjector and webhook of its Go module.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use jobset_harness::chart::Chart;
use jobset_harness::cluster::Cluster;
use jobset_harness::images::{self, ImageSpec};
use jobset_harness::programs::{Helm, ensure_cert_manager, sources};
use jobset_harness::progress::progress;

use crate::manifests::{self, USER};

/// The release that `e2e/cluster/cert-manager/go.mod` names.
pub const VERSION: &str = "v1.21.2";

/// The version that the chart has in the module, and so the tag of its images.
const TAG: &str = "v0.0.0";

/// The images are in the nodes. What the Job of the start checks, [`probe`] does.
const VALUES: &str = "imageRegistry=localhost,imageNamespace=,startupapicheck.enabled=false,crds.enabled=true";

/// How long its webhook may take: the cainjector gives it its caBundle, too.
const LIMIT: Duration = Duration::from_mins(4);

/// Loads the images, installs the chart, and waits until its webhook answers.
pub async fn install(cluster: &Cluster) -> Result<()> {
    let program = tokio::task::spawn_blocking(ensure_cert_manager).await??;
    for component in ["controller", "cainjector", "webhook"] {
        let name = format!("localhost/cert-manager-{component}:{TAG}");
        let (own, entrypoint) = ([(component, "/cert-manager")], format!("/{component}"));
        let image = ImageSpec { user: USER, links: &own, ..ImageSpec::new(&name, &program) };
        cluster.load_image(&images::build(&ImageSpec { entrypoint: &[&entrypoint], ..image })?).await?;
    }
    progress("installing cert-manager");
    let chart = sources("github.com/cert-manager/cert-manager", VERSION)?.join("deploy/charts/cert-manager");
    let chart = chart.to_string_lossy();
    let release = ["install", "cert-manager", &chart, "--namespace", "cert-manager", "--create-namespace", "--wait"];
    let helm = Chart::new(Helm::V4).await?;
    helm.run(cluster, &[&release[..], &["--timeout", "4m", "--set", VALUES]].concat()).await?;
    manifests::are_reviewed(cluster, "cert-manager", &probe(), LIMIT).await
}

/// An Issuer that is only reviewed.
fn probe() -> Value {
    json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Issuer",
        "metadata": {"name": "probe", "namespace": "default"}, "spec": {"selfSigned": {}},
    })
}
