//! The e2e suite of the Go JobSet: a cluster with what the suite expects of one, and the product installed on it.

use anyhow::Result;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::report::Case;
use super::{Subject, Suite, originals, run};
use crate::go_jobset;
use jobset_harness::chart::{Chart, RELEASE};
use jobset_harness::cluster::Cluster;
use jobset_harness::programs::{Helm, rust_binaries};
use jobset_harness::{admission, images, install, wait};

const NODES: usize = 2;

/// Runs the suite against the product, installed by its own means on a new cluster.
pub(super) async fn judge(subject: Subject, focus: &[&str]) -> Result<Vec<Case>> {
    let suites = originals().await?;
    // Some cases claim volumes; this provisioner makes them folders of the machine that all nodes share.
    let builder = Cluster::builder().controller_manager_arg("--enable-hostpath-provisioner=true");
    let cluster = builder.cluster(NODES).await?;
    admission::apply(&cluster, "expected.json", &expected()).await?;
    cluster.load_image(&images::go_suite()?).await?;
    match subject {
        Subject::Ours => install_chart(&cluster).await?,
        Subject::Go => go_jobset::install(&cluster, go_jobset::DEFAULT_CONFIGURATION).await?,
    }
    let cases = run::original(&suites, Suite::E2e, focus, &[("KUBECONFIG", cluster.kubeconfig())]).await?;
    volumes_are_gone(&cluster).await?;
    cluster.stop().await?;
    Ok(cases)
}

/// Waits until the provisioner has removed its folders, which lie outside of the cluster's own.
async fn volumes_are_gone(cluster: &Cluster) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(cluster.client());
    wait::until(install::LIMIT, "the volumes of the e2e suite to be deleted", || async {
        Ok(volumes.list(&ListParams::default()).await?.items.is_empty().then_some(()))
    })
    .await
}

/// Installs the chart, with the name of the Deployment that the suite looks for.
async fn install_chart(cluster: &Cluster) -> Result<()> {
    install::load_images(cluster, &rust_binaries().await?).await?;
    let name = format!("controller.name={}", go_jobset::DEPLOYMENT);
    let (helm, chart) = (Chart::new(Helm::V4).await?, Chart::folder());
    let namespace = ["--namespace", install::NAMESPACE, "--create-namespace", "--wait", "--timeout", "3m"];
    let args = ["install", RELEASE, &chart.to_string_lossy(), "--set", &name];
    helm.run(cluster, &[&args[..], &namespace].concat()).await.map(drop)
}

/// What the suite finds in the clusters that its authors use: a default StorageClass; and, for want of a registry, a policy by
/// which images named `latest` are not pulled.
fn expected() -> [Value; 3] {
    let name = "image-pull-policy.jobset-e2e.example.com";
    [
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {
                "name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "kubernetes.io/host-path",
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
                ]},
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": concat!(
                    "Object{spec: Object.spec{",
                    "containers: object.spec.containers.map(c, ",
                    "Object.spec.containers{name: c.name, imagePullPolicy: 'IfNotPresent'}), ",
                    "initContainers: object.spec.?initContainers.orValue([]).map(c, ",
                    "Object.spec.initContainers{name: c.name, imagePullPolicy: 'IfNotPresent'})}}",
                )}}],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name},
        }),
    ]
}
