//! Where the demo's workers run, and how it hears of them: in its own cluster it reads their journals and kills their
//! processes; in another's it has nothing but the API server.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};

use super::logs::Logs;
use jobset_harness::cluster::Cluster;
use jobset_harness::images::Repository;
use jobset_harness::journal::{self, Entry};
use jobset_harness::process::{self, Signal};
use jobset_harness::workload::{WORKER_PORT, Workload};

/// A namespace in which the demo's JobSets run.
pub(super) struct Stage {
    pub(super) client: Client,
    pub(super) namespace: String,
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
        Self { client: cluster.client(), namespace: namespace.to_owned(), reach: Reach::Host(cluster.shared_dir()) }
    }

    /// In any cluster, with the images of this repository.
    pub(super) fn api(client: Client, namespace: &str, images: Repository) -> Self {
        let logs = Box::new(Logs::new(client.clone(), namespace));
        Self { client, namespace: namespace.to_owned(), reach: Reach::Api { logs, images } }
    }

    /// What to apply here.
    pub(super) fn workload(&self, manifest: &str) -> Result<Workload> {
        match &self.reach {
            Reach::Host(journals) => Workload::new(manifest, &self.namespace, journals),
            Reach::Api { images, .. } => Workload::without_journal(manifest, &self.namespace, images),
        }
    }

    /// A Pod was seen.
    pub(super) fn saw(&self, pod: &Pod) {
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

    /// Ends the worker of a Pod.
    pub(super) async fn kill(&self, pod: &Pod) -> Result<()> {
        match &self.reach {
            Reach::Host(_) => {
                let uid = pod.uid().unwrap_or_default();
                process::signal("jobset-test-worker", &[("POD_UID", &uid)], Signal::TERM)
            }
            Reach::Api { .. } => self.order_to_end(pod).await,
        }
    }

    async fn order_to_end(&self, pod: &Pod) -> Result<()> {
        let (namespace, name) = (&self.namespace, pod.name_any());
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{WORKER_PORT}/proxy/exit?code=1");
        match self.client.request_text(Request::get(path).body(Vec::new())?).await {
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                bail!("you may not reach Pods through the API server (get pods/proxy): {}", status.message)
            }
            Err(kube::Error::Api(status)) if status.code < 500 => {
                Err(kube::Error::Api(status)).context("cannot end a worker")
            }
            // It may be gone before it has answered; what it writes down decides.
            _ => Ok(()),
        }
    }
}
