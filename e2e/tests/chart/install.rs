//! The chart on real kubelets, by the real Helm: installed, upgraded, rolled back and deleted while groups restart.
//!
//! The programs are those of this commit throughout, for there are no images of older ones here. What is taken over is
//! `deploy/kustomize`, as in the docs. The upgrade is that of the docs, to images with another tag, and changes settings of
//! the programs, too.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use jobset_harness::chart::{Chart, RELEASE};
use jobset_harness::cluster::Cluster;
use jobset_harness::group::{Group, LIMIT, Workers};
use jobset_harness::images::Repository;
use jobset_harness::install::{self, kubectl};
use jobset_harness::programs::Helm;
use jobset_harness::progress::progress;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{STORY_1, SUPERVISED, Workload};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

use super::certificates::{Certificates, reviewed_throughout};
use super::docs::{NEW, helm_commands};
use super::leftovers::leftovers;
use super::traffic;
use crate::kubelet::{assert_in_place, binaries, run_kubectl_jobset};

const SYSTEM: &str = install::NAMESPACE;
const CONTROLLER: &str = "deployment/jobset-controller";
const WEBHOOK: &str = "deployment/jobset-webhook";
const CUSTOM: &str = "batch-system";

#[tokio::test]
async fn groups_restart_exactly_through_takeover_rollback_and_reinstall() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    install::install(&cluster, binaries().await?).await?;
    let certificates = Certificates::read(&cluster).await?;
    let mut story = Story::begin(&cluster).await?;

    let (helm, chart) = (Chart::new(Helm::V4).await?, Chart::folder());
    let chart = chart.to_string_lossy();
    let system = ["--namespace", SYSTEM, "--wait", "--timeout", "2m"];
    let take = ["install", RELEASE, &chart, "--take-ownership", "--force-conflicts"];
    let take = [&take[..], &system].concat();
    let taken = Box::pin(reviewed_throughout(&cluster, helm.run(&cluster, &take)));
    story.during("takeover", taken).await?;
    certificates.are_as_stored().await?;
    let next = Repository::local(NEW)?;
    install::load_product_images(&cluster, binaries().await?, &next).await?;
    let upgrade = helm_commands("upgrade.md").await?.into_iter().next().context("the page has no command")?;
    let upgrade = upgrade.words.iter().map(|word| if word == "deploy/chart" { &*chart } else { word });
    // What it has taken over from kubectl is kubectl's, too, until it changes.
    let change = ["--force-conflicts", "--timeout", "2m", "--set", "log.format=json", "--set", "log.filter=debug"];
    let change: Vec<&str> = upgrade.chain(change).collect();
    story.during("upgrade", helm.run(&cluster, &change)).await?;
    let container = deployed(&cluster, SYSTEM).await?;
    ensure!(
        container.contains("--log-format=json") && container.contains(&next.name("jobset-controller")),
        "{container}"
    );
    replicas_lie_apart(&cluster, SYSTEM).await?;
    story.during("rollback", helm.run(&cluster, &[&["rollback", RELEASE, "1"][..], &system].concat())).await?;
    let container = deployed(&cluster, SYSTEM).await?;
    let before = Repository::default().name("jobset-controller");
    ensure!(container.contains("--log-format=text") && container.contains(&before), "{container}");
    replicas_lie_apart(&cluster, SYSTEM).await?;
    story.without_controller(&cluster).await?;
    scale(&cluster, WEBHOOK, 0).await?;
    let test = ["test", RELEASE, "--namespace", SYSTEM, "--timeout", "2m", "--logs"];
    ensure!(helm.run(&cluster, &test).await.is_err(), "no webhook runs");
    scale(&cluster, WEBHOOK, 2).await?;
    let log = helm.run(&cluster, &test).await?;
    said_once(&log, &["TEST SUITE: ", "admission works"])?;
    helm.run(&cluster, &[&["uninstall", RELEASE][..], &system].concat()).await?;
    assert_eq!(leftovers(&cluster, SYSTEM).await?, Vec::<String>::new(), "nothing is left but the CRD");
    story.runs_on().await?;

    let helm = Chart::new(Helm::V3).await?;
    kubectl(&cluster, &["create", "namespace", CUSTOM]).await?;
    kubectl(&cluster, &["label", "namespace", CUSTOM, "pod-security.kubernetes.io/enforce=restricted"]).await?;
    let custom = ["--namespace", CUSTOM, "--wait", "--timeout", "2m"];
    let begun = Instant::now();
    // The CRD is still there, and another release's.
    helm.run(&cluster, &[&["install", RELEASE, &chart, "--take-ownership"][..], &custom].concat()).await?;
    progress(&format!("from helm install to ready: {:.1} s", begun.elapsed().as_secs_f64()));
    let change = ["upgrade", RELEASE, &chart, "--set", "certificates.self.certLifetime=1h"];
    story.during("upgrade by Helm 3", helm.run(&cluster, &[&change[..], &custom].concat())).await?;
    let test = helm.run(&cluster, &["test", RELEASE, "--namespace", CUSTOM, "--timeout", "2m"]).await?;
    said_once(&test, &["TEST SUITE: "])?;
    traffic::check_network_policies(
        &cluster,
        CUSTOM,
        &["jobset-controller", "jobset-webhook", install::RELAY, "jobset-certs"],
    )
    .await?;
    traffic::check_priority_levels(&cluster).await?;
    helm.run(&cluster, &[&["uninstall", RELEASE][..], &custom].concat()).await?;
    assert_eq!(leftovers(&cluster, CUSTOM).await?, Vec::<String>::new());
    cluster.stop().await
}

/// Two groups, with a sidecar that watches and with a supervisor that has the stream, and how often they have restarted.
struct Story {
    groups: Vec<(Group, Workers)>,
    restarts: i32,
}

impl Story {
    async fn begin(cluster: &Cluster) -> Result<Self> {
        let mut groups = Vec::new();
        for (namespace, manifest, injected) in
            [("sidecars", STORY_1, None), ("supervisors", SUPERVISED, Some("Supervisor"))]
        {
            let change = |it: Workload| it.of_shape(1, 2).with_max_restarts(100);
            let change = |it| injected.into_iter().fold(change(it), Workload::injected);
            let group = Group::apply(cluster, namespace, manifest, change).await?;
            let workers = group.runs_in_epoch(1).await?;
            groups.push((group, workers));
        }
        Ok(Self { groups, restarts: 0 })
    }

    /// A worker of each group fails while the change goes on.
    async fn during(&mut self, what: &str, change: impl Future<Output = Result<String>>) -> Result<()> {
        let failures = async {
            for (group, workers) in &self.groups {
                group.exit(workers.values().next().context("no worker")?, 1).await?;
            }
            Ok(())
        };
        let (changed, failed): (_, Result<()>) = tokio::join!(change, failures);
        changed.with_context(|| what.to_owned())?;
        failed?;
        self.have_restarted(what).await
    }

    /// All groups end in the next epoch, in place, counted once.
    async fn have_restarted(&mut self, what: &str) -> Result<()> {
        self.restarts += 1;
        for (group, workers) in &mut self.groups {
            let after = group.runs_in_epoch(1 + self.restarts).await.with_context(|| what.to_owned())?;
            assert_in_place(workers, &after);
            *workers = after;
            let status = group.status().await?;
            let counted = (status.restarts_count_towards_max, status.group_restarts, status.restarts);
            assert_eq!(counted, (self.restarts, self.restarts, 0), "{what}: {}", group.namespace);
        }
        progress(&format!("{what}: all groups restarted in place, once"));
        Ok(())
    }

    /// While no controller runs, a worker of each group fails. `kubectl jobset` says that nobody leads, and what waits.
    async fn without_controller(&mut self, cluster: &Cluster) -> Result<()> {
        scale(cluster, CONTROLLER, 0).await?;
        let (group, _) = self.groups.first().context("no group")?;
        self.says(cluster, group, "explain", &["runs", "No controller has led for"], 0).await?;
        for (group, workers) in &self.groups {
            group.exit(workers.values().next().context("no worker")?, 1).await?;
        }
        for (group, _) in &self.groups {
            let words = ["does not run (NotReady)", "1. No controller has led for", "has reported epoch"];
            self.says(cluster, group, "explain", &words, 1).await?;
            self.says(cluster, group, "status", &["NotReady", "no controller has led for", "1 of 2 do not run"], 0)
                .await?;
        }
        scale(cluster, CONTROLLER, 2).await?;
        self.have_restarted("return of the controller").await
    }

    /// Waits until `kubectl jobset` says these words, and checks its exit code then.
    async fn says(&self, cluster: &Cluster, group: &Group, command: &str, words: &[&str], code: i32) -> Result<()> {
        let what = format!("{words:?} of {command} in {}", group.namespace);
        wait::until(LIMIT, what, || async {
            let (text, ended) = run_kubectl_jobset(cluster, &[command, &group.name, "-n", &group.namespace]).await?;
            let says = words.iter().all(|word| text.contains(word));
            if says && ended == Some(code) { Ok(Some(())) } else { bail!("exit code {ended:?}, not {code}:\n{text}") }
        })
        .await
    }

    /// Nobody has touched the workers.
    async fn runs_on(&self) -> Result<()> {
        for (group, workers) in &self.groups {
            assert_eq!(&group.workers().await?, workers);
        }
        Ok(())
    }
}

/// Waits until the two replicas of each Deployment run on the two nodes, as they do before a rollout.
async fn replicas_lie_apart(cluster: &Cluster, namespace: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    for name in ["jobset-controller", "jobset-webhook", install::RELAY] {
        let replicas =
            ListParams::default().labels(&format!("app.kubernetes.io/name={name},app.kubernetes.io/part-of=jobset"));
        wait::until_met(LIMIT, format!("replicas of {name} on both nodes"), || async {
            let mut pods = pods.list(&replicas).await?.items;
            pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
            let nodes: Vec<_> = pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref()).collect();
            let are_apart = nodes.len() == 2 && nodes[0] != nodes[1];
            Ok(if are_apart { Check::Met(()) } else { Check::Unmet(format!("they are on {nodes:?}")) })
        })
        .await?;
    }
    Ok(())
}

/// Each of these words is there once.
fn said_once(text: &str, words: &[&str]) -> Result<()> {
    let all_once = words.iter().all(|word| text.matches(word).count() == 1);
    ensure!(all_once, "{words:?} must be there once each:\n{text}");
    Ok(())
}

/// Sets the replicas of a Deployment, and waits until it has them.
async fn scale(cluster: &Cluster, deployment: &str, replicas: u32) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    kubectl(cluster, &["scale", deployment, &replicas, "-n", SYSTEM]).await?;
    kubectl(cluster, &["rollout", "status", deployment, "-n", SYSTEM, "--timeout=120s"]).await.map(drop)
}

/// The container of the controller's Deployment.
async fn deployed(cluster: &Cluster, namespace: &str) -> Result<String> {
    let path = "jsonpath={.spec.template.spec.containers[0]}";
    let output = kubectl(cluster, &["get", "deployment/jobset-controller", "-n", namespace, "-o", path]).await?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
