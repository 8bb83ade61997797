//! Suites that need a cluster with what they expect of one, the product installed on it, and perhaps the managers of those who
//! make JobSets.

use std::path::Path;

use anyhow::Result;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::report::Case;
use super::{Subject, Suite, build, run};
use crate::clients::{kueue, trainer};
use crate::go_jobset;
use jobset_harness::chart::{Chart, RELEASE};
use jobset_harness::cluster::{Cluster, Options};
use jobset_harness::programs::{Helm, rust_binaries};
use jobset_harness::{admission, images, install, wait};

/// The nodes of the clusters that Kueue's suites are made for, in order.
const KIND_NODES: [&str; 8] = [
    "kind-worker",
    "kind-worker2",
    "kind-worker3",
    "kind-worker4",
    "kind-worker5",
    "kind-worker6",
    "kind-worker7",
    "kind-worker8",
];

/// Runs the suite against the product, installed by its own means on a new cluster.
pub(super) async fn judge(subject: Subject, suite: Suite, focus: &[&str]) -> Result<Vec<Case>> {
    let suites = build::originals(suite.project()).await?;
    let cluster = start(suite).await?;
    install(subject, &cluster).await?;
    if suite != Suite::E2e {
        trainer::install(&cluster).await?;
        kueue::install(&cluster, &kueue::configuration("")?).await?;
    }
    let env = [("KUBECONFIG", cluster.kubeconfig()), ("E2E_TEST_AGNHOST_IMAGE", Path::new(kueue::AGNHOST))];
    let cases = run::original(&suites, suite, focus, &env).await?;
    volumes_are_gone(&cluster).await?;
    cluster.stop().await?;
    Ok(cases)
}

/// Installs whose behaviour is judged.
pub(super) async fn install(subject: Subject, cluster: &Cluster) -> Result<()> {
    match subject {
        Subject::Ours => install_chart(cluster).await,
        Subject::Go => go_jobset::install(cluster, go_jobset::DEFAULT_CONFIGURATION).await,
    }
}

/// A cluster as the suite's authors use one.
async fn start(suite: Suite) -> Result<Cluster> {
    match suite {
        Suite::Kueue => {
            let nodes = [("kind-worker", "instance-type=on-demand"), ("kind-worker2", "instance-type=spot")];
            let cluster = named_nodes(nodes.len()).cluster(nodes.len()).await?;
            for (node, label) in nodes {
                install::kubectl(&cluster, &["label", "node", node, label]).await?;
            }
            Ok(cluster)
        }
        Suite::KueueTopology => {
            let cluster = named_nodes(KIND_NODES.len()).cluster(KIND_NODES.len()).await?;
            for (number, node) in KIND_NODES.iter().enumerate() {
                let (block, rack) = (number / 4 + 1, number / 2 % 2 + 1);
                let [block, rack] = [("block", format!("b{block}")), ("rack", format!("r{rack}"))]
                    .map(|(level, name)| format!("cloud.provider.com/topology-{level}={name}"));
                let group = "cloud.provider.com/node-group=tas-group";
                install::kubectl(&cluster, &["label", "node", node, group, &block, &rack]).await?;
            }
            Ok(cluster)
        }
        _ => {
            // Some cases claim volumes; this provisioner makes them folders of the machine that all nodes share.
            let builder = Cluster::builder().controller_manager_arg("--enable-hostpath-provisioner=true");
            let cluster = builder.cluster(2).await?;
            admission::apply(&cluster, "expected.yaml", &expected()).await?;
            cluster.load_image(&images::go_suite()?).await?;
            Ok(cluster)
        }
    }
}

fn named_nodes(count: usize) -> Options {
    Cluster::builder().node_names(KIND_NODES.get(..count).unwrap_or(&KIND_NODES))
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
