//! The configuration files of a cluster's processes: pure functions of its layout. JSON is YAML.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::layout::{Layout, Node};
use crate::images;

/// What the kubelet wants of the kernel. It would write these values machine-wide; it is shown files that have them.
pub(super) const KUBELET_SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Every configuration file with its content; `runc` and `cni` are the program and the folder of the plugins.
pub(super) fn files(layout: &Layout, node_programs: Option<(&Path, &Path)>) -> Vec<(PathBuf, String)> {
    let mut files = vec![(layout.dir.join("audit-policy.json"), audit_policy())];
    if let Some((runc, cni)) = node_programs {
        files.push((layout.dir.join("kube-proxy.json"), kube_proxy(layout)));
        files.push((layout.dir.join("Corefile"), corefile(layout)));
        files.push((layout.dir.join("resolv.conf"), format!("nameserver {}\n", layout.inside)));
        for (path, value) in KUBELET_SYSCTLS {
            files.push((sysctl_file(layout, path), format!("{value}\n")));
        }
        for node in &layout.nodes {
            files.push((node.dir.join("kubelet.json"), kubelet(layout, node)));
            files.push((node.dir.join("containerd.toml"), containerd(node, runc, cni)));
            files.push((node.dir.join("cni/10-e2e.conflist"), cni_list(node)));
        }
    }
    files
}

/// The file that stands for a sysctl in the cluster's mount namespace.
pub(super) fn sysctl_file(layout: &Layout, path: &str) -> PathBuf {
    layout.dir.join("sysctl").join(path.replace('/', "."))
}

fn audit_policy() -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{ "level": "Metadata" }],
    })
    .to_string()
}

/// Timings stay at their defaults: what is measured on this cluster is measured with them.
fn kubelet(layout: &Layout, node: &Node) -> String {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzBindAddress": node.address,
        "tlsCertFile": layout.pki(&format!("{}-serving.crt", node.name)),
        "tlsPrivateKeyFile": layout.pki(&format!("{}-serving.key", node.name)),
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": layout.pki("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": format!("unix://{}", node.containerd_socket().display()),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "clusterDNS": [layout.inside],
        "clusterDomain": "cluster.local",
        "resolvConf": layout.dir.join("resolv.conf"),
        "podLogsDir": node.dir.join("pod-logs"),
        "volumePluginDir": node.dir.join("volume-plugins"),
        "maxPods": 200,
        // The images have no registry from which they could come back, and the disk belongs to others.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": { "memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
    })
    .to_string()
}

fn containerd(node: &Node, runc: &Path, cni: &Path) -> String {
    let dir = node.dir.display();
    let socket = node.containerd_socket();
    let (socket, runc, cni, pause) = (socket.display(), runc.display(), cni.display(), images::PAUSE);
    // NRI and opt would use places that the nodes share with each other and with the machine.
    format!(
        r#"version = 3
root = "{dir}/containerd"
state = "{dir}/containerd-state"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt"]

[grpc]
address = "{socket}"

[ttrpc]
address = "{socket}.ttrpc"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{cni}"]
conf_dir = "{dir}/cni"

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
"#
    )
}

/// A routed veth pair for each Pod: unlike a bridge, it brings every packet past kube-proxy's rules, also between two
/// Pods of one node.
fn cni_list(node: &Node) -> String {
    json!({
        "cniVersion": "1.0.0",
        "name": "e2e",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "dataDir": node.dir.join("cni-addresses"),
                "ranges": [[{ "subnet": node.pod_subnet }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    })
    .to_string()
}

fn kube_proxy(layout: &Layout) -> String {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": { "kubeconfig": layout.kubeconfig("kube-proxy") },
        "clusterCIDR": layout.network,
        "hostnameOverride": layout.nodes.first().map(|node| &node.name),
        // The limits of connection tracking are machine-wide and not this cluster's to set.
        "conntrack": { "maxPerCore": 0, "min": 0 },
    })
    .to_string()
}

fn corefile(layout: &Layout) -> String {
    format!(
        ".:53 {{
    errors
    ready :8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {}
        pods insecure
    }}
}}
",
        layout.kubeconfig("admin").display()
    )
}
