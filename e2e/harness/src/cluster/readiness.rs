//! What "ready" means for each part of a cluster, and the wait for it that ends early when a process has ended.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::future::Future;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Node, ServiceAccount};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::process::Command;

use super::layout::Layout;
use super::supervisor::{self, Response, ask};
use crate::http_client;
use crate::programs::succeeded;
use crate::wait::{self, Check};

/// How long each part may take; generous, for a machine that is busy with a build.
const LIMIT: Duration = Duration::from_mins(2);
/// How often the processes are looked at during a wait.
const LOOK_PERIOD: Duration = Duration::from_millis(500);
/// How many of a log's last lines an error shows.
const TAIL: usize = 15;

/// Waits that also watch the cluster's processes.
pub(super) struct Watched<'a> {
    pub(super) layout: &'a Layout,
}

impl Watched<'_> {
    /// Awaits `ready`, unless a process of the cluster ends before.
    pub(super) async fn until(&self, what: &str, ready: impl Future<Output = Result<()>>) -> Result<()> {
        tokio::select! {
            outcome = ready => outcome.with_context(|| format!("{what} did not become ready")),
            error = self.ended() => Err(error.context(format!("waiting for {what}"))),
        }
    }

    async fn ended(&self) -> anyhow::Error {
        loop {
            match ask(&self.layout.supervisor(), &supervisor::Request::Ended).await {
                Ok(Response::Ended(ended)) if !ended.is_empty() => return self.describe(&ended),
                Ok(_) => tokio::time::sleep(LOOK_PERIOD).await,
                Err(error) => return error,
            }
        }
    }

    fn describe(&self, ended: &BTreeMap<String, String>) -> anyhow::Error {
        let mut text = String::new();
        for (name, status) in ended {
            let log = self.layout.log(name);
            let content = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = content.lines().collect();
            let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
            // Writing to a string cannot fail.
            let _ = write!(text, "{name} ended ({status}); the end of {}:\n{tail}\n", log.display());
        }
        anyhow::Error::msg(text)
    }
}

/// A client of the cluster whose administrator's kubeconfig this is.
pub(super) async fn client(kubeconfig: &Path) -> Result<Client> {
    Client::try_from(config(kubeconfig).await?).context("cannot make a client")
}

/// The configuration of such a client.
pub(super) async fn config(kubeconfig: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("cannot read the cluster's kubeconfig")?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("cannot use the cluster's kubeconfig")
}

/// The API server serves, and its start-up hooks (roles, namespaces) are through.
pub(super) async fn api_server(client: &Client) -> Result<()> {
    wait::until(LIMIT, "/readyz of the API server", || async {
        client.request_text(Request::get("/readyz").body(Vec::new())?).await.context("/readyz")?;
        Ok(Some(()))
    })
    .await
}

/// The controllers have given the default namespace what every Pod needs.
pub(super) async fn controller_manager(client: &Client) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    wait::until(LIMIT, "the default service account and its certificates", || async {
        accounts.get("default").await.context("service account default")?;
        maps.get("kube-root-ca.crt").await.context("config map kube-root-ca.crt")?;
        Ok(Some(()))
    })
    .await
}

/// Every node is Ready, and the scheduler may use it.
pub(super) async fn nodes(client: &Client, count: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    wait::until_met(LIMIT, format!("{count} nodes to be ready"), || async {
        let listed = nodes.list(&kube::api::ListParams::default()).await.context("listing nodes")?.items;
        let unready: Vec<String> = listed.iter().filter_map(why_unready).collect();
        if listed.len() >= count && unready.is_empty() {
            return Ok(Check::Met(()));
        }
        Ok(Check::Unmet(format!("{} nodes, not ready: [{}]", listed.len(), unready.join("; "))))
    })
    .await
}

fn why_unready(node: &Node) -> Option<String> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    if ready.is_none_or(|condition| condition.status != "True") {
        return Some(format!("{name}: {}", ready.and_then(|ready| ready.message.as_deref()).unwrap_or("no condition")));
    }
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.first().map(|taint| format!("{name}: has the taint {}", taint.key))
}

/// kube-proxy has written its rules, and CoreDNS has read Services and endpoints.
pub(super) async fn services(inside: IpAddr) -> Result<()> {
    for (name, port, path) in [("kube-proxy", 10256, "/healthz"), ("CoreDNS", 8181, "/ready")] {
        wait::until(LIMIT, format!("{path} of {name}"), || async {
            let answer = http_client::get((inside, port), path).await?;
            let status = answer.lines().next().unwrap_or_default();
            if status.contains(" 200 ") { Ok(Some(())) } else { bail!("{name} answers {status}") }
        })
        .await?;
    }
    Ok(())
}

pub(super) async fn containerd(ctr: &Path, socket: &Path) -> Result<()> {
    wait::until(LIMIT, format!("containerd at {}", socket.display()), || async {
        let output = Command::new(ctr).arg("--address").arg(socket).arg("version").output().await;
        succeeded("ctr version", &output.context("cannot run ctr")?).map(Some)
    })
    .await
}

/// Imports an image into the containerd at `socket`, waiting for containerd to serve.
pub(super) async fn load_image(ctr: &Path, socket: PathBuf, image: &Path) -> Result<()> {
    wait::until(LIMIT, format!("the import of {} through {}", image.display(), socket.display()), || async {
        let output = Command::new(ctr)
            .arg("--address")
            .arg(&socket)
            .args(["--namespace", "k8s.io", "images", "import"])
            .arg(image)
            .output()
            .await
            .context("cannot run ctr")?;
        succeeded("ctr", &output).map(Some)
    })
    .await
}
