//! The first JobSet of the README, with the commands that stand below it, and nothing replaced but its image.

use anyhow::{Context, Result};
use jobset_api::JobSet;
use jobset_harness::group::LIMIT;
use jobset_harness::install::{self, kubectl};
use jobset_harness::wait::{self, Check};
use jobset_harness::{images, paths};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams};

use super::shared::{installed, with_admission};

const NAMESPACE: &str = "first";

/// The first manifest of the README, and the commands after it, each as its words.
fn story() -> Result<(String, Vec<Vec<String>>)> {
    let readme = std::fs::read_to_string(paths::workspace().join("README.md"))?;
    let (_, rest) = readme.split_once("```yaml\n").context("the README has no manifest")?;
    let (manifest, rest) = rest.split_once("```\n").context("the manifest does not end")?;
    let commands = rest.lines().skip_while(|line| line.is_empty()).map_while(|line| line.strip_prefix("    kubectl "));
    let words = |command: &str| command.split_whitespace().map(|word| word.replace('\'', "")).collect();
    Ok((manifest.replace("busybox:1.37", images::BUSYBOX), commands.map(words).collect()))
}

#[tokio::test]
async fn first_jobset_of_readme_worker_killed_restarts_in_place() -> Result<()> {
    let cluster = installed().await?;
    install::create_namespace(&cluster.client(), NAMESPACE).await?;
    let (manifest, commands) = story()?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("first.yaml"), manifest)?;
    let file = folder.path().join("first.yaml").to_string_lossy().into_owned();
    let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    let identities = async || -> Result<Vec<_>> {
        let pods = pods.list(&ListParams::default()).await?.items;
        Ok(pods.into_iter().map(|pod| (pod.metadata.uid, pod.status.and_then(|status| status.pod_ip))).collect())
    };
    let admission = with_admission().await;
    let (mut before, mut done) = (Vec::new(), Vec::new());
    for command in commands {
        if command[0] == "exec" {
            before = identities().await?;
        }
        let words: Vec<&str> = command.iter().map(|word| if word == "first.yaml" { &file[..] } else { word }).collect();
        kubectl(cluster, &[&["-n", NAMESPACE][..], &words].concat()).await?;
        done.push(command[0].clone());
    }
    drop(admission);
    assert_eq!(done, ["apply", "wait", "get", "exec"]);
    let jobsets: Api<JobSet> = Api::namespaced(cluster.client(), NAMESPACE);
    wait::until_met(LIMIT, "the group to run again", || async {
        let status = jobsets.get("first").await?.status.unwrap_or_default();
        let runs = (status.group_restarts, status.synced_epoch, &status.jobs_ready[..]) == (1, 2, "2/2");
        Ok(if runs { Check::Met(()) } else { Check::Unmet(format!("{status:?}")) })
    })
    .await?;
    assert_eq!(identities().await?, before, "all Pods are kept");
    assert_eq!(before.len(), 4);
    let described = kubectl(cluster, &["describe", "jobset", "first", "-n", NAMESPACE]).await?;
    let described = String::from_utf8_lossy(&described.stdout).into_owned();
    assert!(described.contains("container worker exited with code 3"), "{described}");
    jobsets.delete("first", &DeleteParams::background()).await?;
    Ok(())
}
