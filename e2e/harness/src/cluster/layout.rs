//! Where a cluster's files and addresses are: pure values, from which components and configuration files are made.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::slot::Slot;

/// The range of Service addresses; it lives in the cluster's own network namespace.
pub(super) const SERVICE_RANGE: &str = "10.96.0.0/16";
/// The address of the `kubernetes` Service: the first of the range.
pub(super) const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// What a cluster is to be like.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Options {
    /// The number of nodes; 0 means a control plane without a scheduler.
    pub nodes: usize,
    /// Whether the API server writes `logs/audit.log`, one JSON event for each request (level `Metadata`).
    pub audit: bool,
    /// More arguments for kube-apiserver, for instance `--feature-gates=...`.
    pub api_server_args: Vec<String>,
    /// More arguments for kube-controller-manager.
    pub controller_manager_args: Vec<String>,
}

/// A cluster that is ready for use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The folder of its state and logs.
    pub dir: PathBuf,
    /// A kubeconfig of a cluster administrator.
    pub kubeconfig: PathBuf,
    /// The API server's URL, reachable from the host.
    pub server: String,
    /// The host's address as the API server and the Pods reach it, for instance for a webhook that runs on the host.
    pub host_address: Ipv4Addr,
    /// The names of the nodes.
    pub nodes: Vec<String>,
    /// The owner's process id.
    pub owner: u32,
    /// The folder of `kubectl`.
    pub programs: PathBuf,
    /// The folder of `ctr`; none for a control plane.
    pub node_programs: Option<PathBuf>,
}

/// One node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) address: Ipv4Addr,
    pub(super) pod_subnet: String,
    /// The folder of its kubelet and containerd.
    pub(super) dir: PathBuf,
    /// The path of its cgroup below each hierarchy.
    pub(super) cgroup: String,
}

impl Node {
    /// The socket of the node's containerd.
    pub(super) fn containerd_socket(&self) -> PathBuf {
        containerd_socket(&self.dir)
    }
}

/// The socket of the containerd whose node lives in `node_dir`.
pub(super) fn containerd_socket(node_dir: &Path) -> PathBuf {
    node_dir.join("containerd.sock")
}

/// A cluster's files and addresses.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) dir: PathBuf,
    /// The host's end of the veth pair.
    pub(super) host: Ipv4Addr,
    /// The cluster's end: API server, DNS.
    pub(super) inside: Ipv4Addr,
    /// All of the cluster's addresses but the Services'.
    pub(super) network: String,
    pub(super) device: String,
    pub(super) nodes: Vec<Node>,
}

impl Layout {
    /// The layout of a cluster of `nodes` nodes in `slot`.
    pub(super) fn new(dir: &Path, slot: &Slot, nodes: usize) -> Self {
        let nodes = (1..=nodes).filter_map(|number| u8::try_from(number).ok()).map(|number| {
            let name = format!("node-{number}");
            Node {
                address: slot.address(0, 10 + number),
                pod_subnet: format!("{}/24", slot.address(number, 0)),
                dir: dir.join(&name),
                cgroup: format!("/{}/{name}", slot.name()),
                name,
            }
        });
        Self {
            dir: dir.to_path_buf(),
            host: slot.address(0, 1),
            inside: slot.address(0, 2),
            network: format!("{}/16", slot.address(0, 0)),
            device: slot.name(),
            nodes: nodes.collect(),
        }
    }

    /// The API server's URL.
    pub(super) fn server(&self) -> String {
        format!("https://{}:6443", self.inside)
    }

    /// A file of the cluster's authority.
    pub(super) fn pki(&self, name: &str) -> PathBuf {
        self.dir.join("pki").join(name)
    }

    /// The kubeconfig of a component or a user.
    pub(super) fn kubeconfig(&self, name: &str) -> PathBuf {
        self.pki(&format!("{name}.kubeconfig"))
    }

    /// The log of a process.
    pub(super) fn log(&self, process: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{process}.log"))
    }

    /// The supervisor's socket.
    pub(super) fn supervisor(&self) -> PathBuf {
        supervisor_socket(&self.dir)
    }

    /// The names of the nodes.
    pub(super) fn node_names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }
}

/// The supervisor's socket of the cluster in `dir`.
pub(super) fn supervisor_socket(dir: &Path) -> PathBuf {
    dir.join("supervisor.sock")
}
