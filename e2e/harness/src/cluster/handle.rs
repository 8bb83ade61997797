//! The handles by which a test or the demo holds a cluster. The cluster's owner is another process, tied to the handle
//! by a pipe: when the holder ends, the owner takes the cluster down.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::{Client, Config};

use super::components::kubelet_name;
use super::enforcement::Enforcement;
use super::holding::Owner;
use super::layout::{Options, Ready, containerd_socket, supervisor_socket};
use super::network;
use super::readiness;
use super::storage;
use super::supervisor::{ProcessDefinition, Request, ask};

/// How long a node's process may take to end after SIGTERM.
const STOP_GRACE: Duration = Duration::from_secs(15);
/// The same for the API server, which would wait for the watches of its clients.
const API_SERVER_STOP_GRACE: Duration = Duration::from_secs(1);

/// The table of nftables in which ports are blocked.
const BLOCK: &str = "jobset_block";

/// etcd, API server and controller manager: Jobs get their Pods, which stay pending.
pub struct ControlPlane(Handle);

/// A whole cluster: the control plane, a scheduler, and nodes with kubelet, containerd, runc, CNI, kube-proxy, CoreDNS.
pub struct Cluster(Handle);

/// What [`ControlPlane`] and [`Cluster`] have in common.
pub struct Handle {
    ready: Ready,
    config: Config,
    owner: Option<Owner>,
}

impl Options {
    /// Starts a control plane.
    ///
    /// # Errors
    /// When it does not come up; the owner's error and log go to standard error.
    pub async fn control_plane(mut self) -> Result<ControlPlane> {
        self.nodes = 0;
        self.start().await.map(ControlPlane)
    }

    pub async fn cluster(mut self, nodes: usize) -> Result<Cluster> {
        if nodes == 0 {
            bail!("a cluster has at least one node; without nodes it is a ControlPlane");
        }
        self.nodes = nodes;
        self.start().await.map(Cluster)
    }

    async fn start(self) -> Result<Handle> {
        let started = tokio::task::spawn_blocking(move || Owner::start(&self, &storage::new_dir())).await?;
        let (owner, ready) = started?;
        Handle::new(ready, Some(owner)).await
    }
}

impl ControlPlane {
    /// Starts a control plane with the default options.
    pub async fn start() -> Result<Self> {
        Self::builder().control_plane().await
    }

    pub fn builder() -> Options {
        Options::default()
    }

    /// Takes it down and removes its folder. Dropping it takes it down, too, and keeps the logs.
    pub async fn stop(self) -> Result<()> {
        self.0.stop().await
    }
}

impl Cluster {
    /// Starts a whole cluster with the default options.
    pub async fn start(nodes: usize) -> Result<Self> {
        Self::builder().cluster(nodes).await
    }

    pub fn builder() -> Options {
        Options::default()
    }

    /// Uses the cluster that `e2e-cluster up --dir DIR` runs; it outlives this handle.
    pub async fn attach(dir: &Path) -> Result<Self> {
        Handle::new(storage::recorded(dir)?, None).await.map(Self)
    }

    /// As [`ControlPlane::stop`]; a cluster that was attached to stays.
    pub async fn stop(self) -> Result<()> {
        self.0.stop().await
    }

    pub fn nodes(&self) -> &[String] {
        &self.0.ready.nodes
    }

    /// A folder that Pods can mount by `hostPath`, at the same path on every node and on the host.
    pub fn shared_dir(&self) -> PathBuf {
        self.dir().join("shared")
    }

    /// Loads an image, as [`crate::images::build`] makes it, into every node.
    pub async fn load_image(&self, image: &Path) -> Result<()> {
        let ctr = self.0.ready.node_programs.as_ref().context("a control plane has no nodes")?.join("ctr");
        let loads = self
            .nodes()
            .iter()
            .map(|node| readiness::load_image(&ctr, containerd_socket(&self.dir().join(node)), image));
        futures::future::try_join_all(loads).await.map(|_| ())
    }

    /// Joins the networks of two clusters: Pods of one reach the API server, the nodes and the Pods of the other.
    pub async fn join(&self, other: &Cluster) -> Result<()> {
        let (one, two) = (supervisor_socket(self.dir()), supervisor_socket(other.dir()));
        network::join((&one, self.0.ready.address), (&two, other.0.ready.address)).await
    }

    /// Drops all that Pods send to, and receive from, these ports of these addresses, until [`Cluster::unblock`].
    pub async fn block(&self, addresses: &[String], ports: &[u16]) -> Result<()> {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let (addresses, ports) = (addresses.join(", "), ports.join(", "));
        // Before kube-proxy's rules. Each Pod has a link of its own to its node, so that all it sends comes by.
        let rules = format!(
            "add table ip {BLOCK}; add chain ip {BLOCK} blocked {{ type filter hook prerouting priority -350; }}; \
             add rule ip {BLOCK} blocked ip daddr {{ {addresses} }} tcp dport {{ {ports} }} drop; \
             add rule ip {BLOCK} blocked ip saddr {{ {addresses} }} tcp sport {{ {ports} }} drop"
        );
        network::nft(&supervisor_socket(self.dir()), &rules).await
    }

    /// Ends [`Cluster::block`]. It is no error if nothing is blocked.
    pub async fn unblock(&self) -> Result<()> {
        let rules = format!("add table ip {BLOCK}; delete table ip {BLOCK}");
        network::nft(&supervisor_socket(self.dir()), &rules).await
    }

    /// Enforces the NetworkPolicies of the cluster, those of later, too, until the result is dropped. Pods that no policy selects are not
    /// touched.
    pub async fn enforce_network_policies(&self) -> Result<Enforcement> {
        Enforcement::start(self.client(), supervisor_socket(self.dir())).await
    }

    /// Stops the kubelet of a node; its containers go on.
    pub async fn stop_kubelet(&self, node: &str) -> Result<()> {
        self.0.stop_process(&kubelet_name(node), STOP_GRACE).await
    }

    pub async fn start_kubelet(&self, node: &str) -> Result<()> {
        self.0.restart_process(&kubelet_name(node)).await
    }
}

impl Deref for ControlPlane {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.0
    }
}

impl Deref for Cluster {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.0
    }
}

impl Handle {
    async fn new(ready: Ready, owner: Option<Owner>) -> Result<Self> {
        let config = readiness::config(&ready.kubeconfig).await?;
        // Proves that the configuration makes a client, which `client` relies on.
        Client::try_from(config.clone()).context("cannot make a client")?;
        Ok(Self { ready, config, owner })
    }

    /// A new client of a cluster administrator, bound to the calling runtime: tests that share a cluster do not share
    /// a runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[expect(clippy::expect_used, reason = "the same configuration has made a client at the start")]
    pub fn client(&self) -> Client {
        Client::try_from(self.config.clone()).expect("the configuration has made a client before")
    }

    /// The configuration of such a client, to be changed for another user.
    pub fn client_config(&self) -> Config {
        self.config.clone()
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.ready.kubeconfig
    }

    /// The folder of the cluster's state and logs.
    pub fn dir(&self) -> &Path {
        &self.ready.dir
    }

    /// Addresses, folders and nodes.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    pub fn kubectl_path(&self) -> PathBuf {
        self.ready.programs.join("kubectl")
    }

    pub fn owner_pid(&self) -> u32 {
        self.ready.owner
    }

    /// Runs `kubectl` as an administrator; the output has its exit status.
    pub async fn kubectl<I, S>(&self, args: I) -> Result<Output>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        tokio::process::Command::new(self.kubectl_path())
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(args)
            .stdin(Stdio::null())
            .output()
            .await
            .context("cannot run kubectl")
    }

    /// Runs a program beside the cluster's own, in the cluster's namespaces: it ends with the cluster, whatever becomes
    /// of who started it. Its output is `logs/<name>.log`.
    pub async fn start_program(&self, name: &str, program: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<()> {
        let process = ProcessDefinition {
            name: name.to_owned(),
            program: program.to_owned(),
            args: args.iter().copied().map(str::to_owned).collect(),
            env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            log: self.dir().join(format!("logs/{name}.log")),
        };
        ask(&supervisor_socket(self.dir()), &Request::Start(process)).await.map(|_| ())
    }

    /// Stops a program that [`Handle::start_program`] has started.
    pub async fn stop_program(&self, name: &str) -> Result<()> {
        self.stop_process(name, STOP_GRACE).await
    }

    /// Stops the API server, starts it again and waits until it serves.
    pub async fn restart_api_server(&self) -> Result<()> {
        self.stop_api_server().await?;
        self.start_api_server().await
    }

    /// Stops the API server, as a crash would: it may not wait for its clients.
    pub async fn stop_api_server(&self) -> Result<()> {
        self.stop_process("kube-apiserver", API_SERVER_STOP_GRACE).await
    }

    /// Starts a stopped API server and waits until it serves.
    pub async fn start_api_server(&self) -> Result<()> {
        self.restart_process("kube-apiserver").await?;
        readiness::api_server(&self.client()).await
    }

    pub(super) async fn stop_process(&self, name: &str, grace: Duration) -> Result<()> {
        let request = Request::Stop { name: name.to_owned(), grace };
        ask(&supervisor_socket(self.dir()), &request).await.map(|_| ())
    }

    pub(super) async fn restart_process(&self, name: &str) -> Result<()> {
        let request = Request::Restart { name: name.to_owned() };
        ask(&supervisor_socket(self.dir()), &request).await.map(|_| ())
    }

    async fn stop(mut self) -> Result<()> {
        match self.owner.take() {
            Some(owner) => tokio::task::spawn_blocking(move || owner.end()).await?,
            None => Ok(()),
        }
    }
}
