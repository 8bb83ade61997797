//! Where a cluster's files and addresses are: pure values, from which components and configuration files are made.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::family::Family;
use super::slot::NetworkSlot;

/// The properties of a cluster: arguments of `e2e-cluster up`.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct Options {
    /// The number of nodes; 0 means a control plane alone.
    #[arg(long, default_value_t = 0)]
    pub nodes: usize,
    /// The name of a node, from the first on; may be repeated. Without it, a node is called `node-` and its number.
    #[arg(long = "node-name")]
    pub node_names: Vec<String>,
    /// One more name in the certificate of the API server; may be repeated.
    #[arg(long = "server-name")]
    pub server_names: Vec<String>,
    /// Has the API server write `logs/audit.log`, one JSON event for each request (level `Metadata`).
    #[arg(long)]
    pub audit: bool,
    /// One more argument for kube-apiserver; may be repeated.
    #[arg(long = "api-server-arg")]
    pub api_server_args: Vec<String>,
    /// One more argument for kube-controller-manager; may be repeated.
    #[arg(long = "controller-manager-arg")]
    pub controller_manager_args: Vec<String>,
    /// One more argument for kube-scheduler; may be repeated.
    #[arg(long = "scheduler-arg")]
    pub scheduler_args: Vec<String>,
    /// One more argument for each kubelet; may be repeated.
    #[arg(long = "kubelet-arg")]
    pub kubelet_args: Vec<String>,
    /// For how many seconds DNS keeps its answers; 0 means not at all.
    #[arg(long, default_value_t = 0)]
    pub dns_cache: u32,
    /// All addresses are of IPv6: of the API server, nodes, Pods and Services.
    #[arg(long)]
    pub ipv6: bool,
}

impl Options {
    pub fn node_names(mut self, names: &[&str]) -> Self {
        self.node_names = names.iter().copied().map(str::to_owned).collect();
        self
    }

    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_names.push(name.into());
        self
    }

    pub fn audit_log(mut self) -> Self {
        self.audit = true;
        self
    }

    pub fn api_server_arg(mut self, arg: impl Into<String>) -> Self {
        self.api_server_args.push(arg.into());
        self
    }

    pub fn controller_manager_arg(mut self, arg: impl Into<String>) -> Self {
        self.controller_manager_args.push(arg.into());
        self
    }

    pub fn scheduler_arg(mut self, arg: impl Into<String>) -> Self {
        self.scheduler_args.push(arg.into());
        self
    }

    pub fn kubelet_arg(mut self, arg: impl Into<String>) -> Self {
        self.kubelet_args.push(arg.into());
        self
    }

    /// Has DNS keep its answers for so many seconds, those that a name does not exist, too.
    pub fn dns_cache(mut self, seconds: u32) -> Self {
        self.dns_cache = seconds;
        self
    }

    pub fn ipv6(mut self) -> Self {
        self.ipv6 = true;
        self
    }

    pub(super) fn family(&self) -> Family {
        if self.ipv6 { Family::V6 } else { Family::V4 }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The folder of its state and logs.
    pub dir: PathBuf,
    pub kubeconfig: PathBuf,
    /// The API server's URL, reachable from the host.
    pub server: String,
    /// The address of the API server, and of all that runs beside it.
    pub address: IpAddr,
    /// The host's address as the API server and the Pods reach it, for instance for a webhook that runs on the host.
    pub host_address: IpAddr,
    pub nodes: Vec<String>,
    /// The owner's process id.
    pub owner: u32,
    /// The folder of `kubectl`.
    pub programs: PathBuf,
    /// The folder of `ctr`; none for a control plane.
    pub node_programs: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) pod_subnet: String,
    /// The folder of its kubelet and containerd.
    pub(super) dir: PathBuf,
    /// The path of its cgroup below each hierarchy.
    pub(super) cgroup: String,
}

impl Node {
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
    pub(super) family: Family,
    /// The host's end of the veth pair.
    pub(super) host: IpAddr,
    /// The cluster's end: API server, DNS.
    pub(super) inside: IpAddr,
    /// All of the cluster's addresses but the Services'.
    pub(super) network: String,
    pub(super) device: String,
    pub(super) nodes: Vec<Node>,
}

impl Layout {
    pub(super) fn new(dir: &Path, slot: &NetworkSlot, options: &Options) -> Self {
        let (family, nodes, names) = (options.family(), options.nodes, &options.node_names);
        let nodes = (1..=nodes).filter_map(|number| u8::try_from(number).ok()).map(|number| {
            let name = names.get(usize::from(number) - 1).cloned().unwrap_or_else(|| format!("node-{number}"));
            Node {
                address: slot.address(family, 0, 10 + number),
                pod_subnet: format!("{}/{}", slot.address(family, number, 0), family.subnet()),
                dir: dir.join(&name),
                cgroup: format!("/{}/{name}", slot.name()),
                name,
            }
        });
        Self {
            dir: dir.to_path_buf(),
            family,
            host: slot.address(family, 0, 1),
            inside: slot.address(family, 0, 2),
            network: format!("{}/{}", slot.address(family, 0, 0), family.network()),
            device: slot.name(),
            nodes: nodes.collect(),
        }
    }

    /// The API server's URL.
    pub(super) fn server(&self) -> String {
        format!("https://{}", SocketAddr::new(self.inside, 6443))
    }

    /// A file of the cluster's authority.
    pub(super) fn pki(&self, name: &str) -> PathBuf {
        self.dir.join("pki").join(name)
    }

    /// The kubeconfig of a component or a user.
    pub(super) fn kubeconfig(&self, name: &str) -> PathBuf {
        self.pki(&format!("{name}.kubeconfig"))
    }

    pub(super) fn log(&self, process: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{process}.log"))
    }

    pub(super) fn supervisor(&self) -> PathBuf {
        supervisor_socket(&self.dir)
    }

    pub(super) fn node_names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }
}

/// The supervisor's socket of the cluster in `dir`.
pub(super) fn supervisor_socket(dir: &Path) -> PathBuf {
    dir.join("supervisor.sock")
}
