//! Where the demo's workers run, and how it hears of them: in its own cluster it reads their journals; in another's it has nothing
//! but the API server.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use tokio::process::Command;

use super::logs::Logs;
use jobset_harness::cluster::Cluster;
use jobset_harness::images::Repository;
use jobset_harness::journal::{self, Entry};
use jobset_harness::programs::beside;
use jobset_harness::workload::{WORKER_PORT, Workload};

/// A namespace in which the demo's JobSets run.
pub(super) struct Stage {
    pub(super) client: Client,
    pub(super) namespace: String,
    /// The option of `kubectl jobset` that names the cluster.
    cluster: [OsString; 2],
    reach: Reach,
}

enum Reach {
    /// The folder of the journals.
    Host(PathBuf),
    Api {
        logs: Box<Logs>,
        images: Repository,
    },
}

impl Stage {
    /// In a cluster of this machine.
    pub(super) fn host(cluster: &Cluster, namespace: &str) -> Self {
        Self {
            client: cluster.client(),
            namespace: namespace.to_owned(),
            cluster: ["--kubeconfig".into(), cluster.kubeconfig().into()],
            reach: Reach::Host(cluster.shared_dir()),
        }
    }

    /// In the cluster of a context of the kubeconfig, with the images of this repository.
    pub(super) fn api(client: Client, context: &str, namespace: &str, images: Repository) -> Self {
        let logs = Box::new(Logs::new(client.clone(), namespace));
        let cluster = ["--context".into(), context.into()];
        Self { client, namespace: namespace.to_owned(), cluster, reach: Reach::Api { logs, images } }
    }

    /// What to apply here.
    pub(super) fn workload(&self, manifest: &str) -> Result<Workload> {
        match &self.reach {
            Reach::Host(journals) => Workload::new(manifest, &self.namespace, journals),
            Reach::Api { images, .. } => Workload::without_journal(manifest, &self.namespace, images),
        }
    }

    /// Hears of what the worker of this Pod writes from now on.
    pub(super) fn follow(&self, pod: &Pod) {
        if let Reach::Api { logs, .. } = &self.reach {
            logs.follow(pod);
        }
    }

    /// What the workers have written down so far.
    pub(super) fn entries(&self) -> Result<Vec<Entry>> {
        match &self.reach {
            Reach::Host(journals) => journal::read(journals, &self.namespace),
            Reach::Api { logs, .. } => Ok(logs.entries()),
        }
    }

    /// Runs `kubectl jobset` to its end. The terminal shows what it says.
    pub(super) async fn kubectl_jobset(&self, arguments: &[&str]) -> Result<()> {
        let command = format!("kubectl jobset {}", arguments.join(" "));
        println!("$ {command}");
        let mut plugin = Command::new(beside("kubectl-jobset")?);
        plugin.args(arguments).args(["--namespace", &self.namespace]).args(&self.cluster).kill_on_drop(true);
        let status = plugin.status().await.context("cannot run kubectl-jobset")?;
        ensure!(status.success(), "{command} ended with {status}");
        Ok(())
    }

    /// Makes the worker of a Pod end with code 1.
    pub(super) async fn end(&self, pod: &Pod) -> Result<()> {
        let (namespace, name) = (&self.namespace, pod.name_any());
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{WORKER_PORT}/proxy/exit?code=1");
        match self.client.request_text(Request::get(path).body(Vec::new())?).await {
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                bail!("you may not reach Pods through the API server (get pods/proxy): {}", status.message)
            }
            Err(kube::Error::Api(status)) if status.code < 500 => {
                Err(kube::Error::Api(status)).context("cannot end a worker")
            }
            // The worker may be gone before it has answered; what it writes down decides.
            _ => Ok(()),
        }
    }
}
