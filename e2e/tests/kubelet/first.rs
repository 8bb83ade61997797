//! The page of the first JobSet: its commands as they stand there, with nothing replaced but the image.

use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use jobset_api::JobSet;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::LIMIT;
use jobset_harness::markdown::blocks;
use jobset_harness::programs::{beside, succeeded};
use jobset_harness::wait::{self, Check};
use jobset_harness::{images, install, paths};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use tokio::process::Command;

use super::shared::{installed, names_exit_of_sidecar, with_admission};

pub(crate) const NAMESPACE: &str = "first";

/// A file of the project.
pub(crate) fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(paths::workspace().join(path)).with_context(|| format!("cannot read {path}"))
}

/// The manifest of the page, and the commands of each of its blocks.
pub(crate) fn page() -> Result<(String, Vec<Vec<String>>)> {
    let blocks = blocks(&read("docs/src/first-jobset.md")?)?;
    let manifest = blocks.iter().find(|block| block.is_yaml()).context("the page has no manifest")?;
    let console = blocks.iter().filter(|block| block.language == "console");
    let commands = console.map(|block| block.text.lines().map(str::to_owned).collect()).collect();
    Ok((manifest.text.clone(), commands))
}

/// Saves the manifest as `first.yaml`, with the image that the nodes have.
pub(crate) fn save(manifest: &str, folder: &Path) -> Result<()> {
    ensure!(manifest.contains("busybox:1.36"), "the manifest has another image");
    Ok(std::fs::write(folder.join("first.yaml"), manifest.replace("busybox:1.36", images::BUSYBOX))?)
}

/// A shell in which `kubectl` has the plugin and works on the namespace of this test.
pub(crate) struct Shell<'a> {
    folder: &'a Path,
}

impl<'a> Shell<'a> {
    pub(crate) async fn new(cluster: &Cluster, folder: &'a Path) -> Result<Self> {
        symlink(cluster.kubectl_path(), folder.join("kubectl"))?;
        symlink(beside("kubectl-jobset")?, folder.join("kubectl-jobset"))?;
        std::fs::copy(cluster.kubeconfig(), folder.join("kubeconfig"))?;
        let shell = Self { folder };
        shell.run(&format!("kubectl config set-context --current --namespace={NAMESPACE}")).await?;
        Ok(shell)
    }

    pub(crate) async fn run(&self, command: &str) -> Result<String> {
        println!("$ {command}");
        let inherited = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{inherited}", self.folder.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(self.folder).env("PATH", path);
        let output = shell.env("KUBECONFIG", self.folder.join("kubeconfig")).output().await?;
        succeeded(command, &output)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Waits until the group runs again after so many restarts. The UIDs and addresses of its Pods.
pub(crate) async fn runs_again(cluster: &Cluster, restarts: i32) -> Result<Vec<(Option<String>, Option<String>)>> {
    let jobsets: Api<JobSet> = Api::namespaced(cluster.client(), NAMESPACE);
    wait::until_met(LIMIT, format!("the group to run after {restarts} restarts"), || async {
        let status = jobsets.get("first").await?.status.unwrap_or_default();
        let runs = status.group_restarts == restarts
            && status.deprecated_epoch < status.synced_epoch
            && status.jobs_ready == "2/2";
        Ok(if runs { Check::Met(()) } else { Check::Unmet(format!("{status:?}")) })
    })
    .await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    let pods = pods.list(&ListParams::default()).await?.items;
    Ok(pods.into_iter().map(|pod| (pod.metadata.uid, pod.status.and_then(|status| status.pod_ip))).collect())
}

#[tokio::test]
async fn first_jobset_page_is_followed_from_beginning_to_end() -> Result<()> {
    let cluster = installed().await?;
    install::create_namespace(&cluster.client(), NAMESPACE).await?;
    let (manifest, commands) = page()?;
    let folder = tempfile::tempdir()?;
    save(&manifest, folder.path())?;
    let shell = Shell::new(cluster, folder.path()).await?;
    let (mut restarts, mut reports, mut kept) = (0, Vec::new(), Vec::new());
    for block in commands {
        let before = restarts;
        for command in block.iter().filter(|command| !command.ends_with("--watch")) {
            let _admission = with_admission().await;
            if command.starts_with("kubectl delete jobset") {
                restarts = 0;
            } else if command.contains("touch /tmp/fail") || command.starts_with("kubectl delete pod") {
                kept = runs_again(cluster, restarts).await?;
                restarts += 1;
            }
            let printed = shell.run(command).await?;
            if command.starts_with("kubectl jobset restarts") {
                reports.push(printed);
            }
        }
        if restarts > 0 && restarts != before {
            let pods = runs_again(cluster, restarts).await?;
            let stayed = pods.iter().filter(|pod| kept.contains(pod)).count();
            let lost = usize::from(block.iter().any(|command| command.starts_with("kubectl delete pod")));
            assert_eq!((pods.len(), stayed), (4, 4 - lost), "{block:?}");
        }
    }
    let [sidecars, supervisors] = &reports[..] else { bail!("restarts of sidecars and of supervisors: {reports:?}") };
    ensure!(supervisors.contains("worker exited with code 3"), "{supervisors}");
    ensure!(names_exit_of_sidecar(sidecars, 3), "{sidecars}");
    Ok(())
}
