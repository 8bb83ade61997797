//! The configuration files of a cluster's processes, made from the templates in `e2e/harness/configs`.

use std::path::{Path, PathBuf};

use super::layout::{Layout, Node, Options};
use crate::images;

/// Kernel settings that the kubelet requires. It would write them machine-wide, so it gets files that have these values.
pub(super) const KUBELET_SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Every configuration file with its content; `runc` and `cni` are the program and the folder of the plugins.
pub(super) fn files(
    layout: &Layout,
    options: &Options,
    node_programs: Option<(&Path, &Path)>,
) -> Vec<(PathBuf, String)> {
    let of_cluster = |name: &str, template: &str| (layout.dir.join(name), filled(template, layout, None));
    let mut files = vec![of_cluster("audit-policy.yaml", include_str!("../../configs/audit-policy.yaml"))];
    if let Some((runc, cni)) = node_programs {
        // One serves all nodes, and speaks for the first.
        let proxy = filled(include_str!("../../configs/kube-proxy.yaml"), layout, layout.nodes.first());
        files.push((layout.dir.join("kube-proxy.yaml"), proxy));
        files.push(of_cluster("Corefile", &corefile(options.dns_cache)));
        files.push(of_cluster("resolv.conf", "nameserver {inside}\n"));
        for (path, value) in KUBELET_SYSCTLS {
            files.push((sysctl_file(layout, path), format!("{value}\n")));
        }
        let containerd = include_str!("../../configs/containerd.toml")
            .replace("{runc}", &runc.to_string_lossy())
            .replace("{cni}", &cni.to_string_lossy())
            .replace("{pause}", images::PAUSE);
        for node in &layout.nodes {
            let of_node = |name: &str, template: &str| (node.dir.join(name), filled(template, layout, Some(node)));
            files.push(of_node("kubelet.yaml", include_str!("../../configs/kubelet.yaml")));
            files.push(of_node("containerd.toml", &containerd));
            // A routed veth pair for each Pod: unlike a bridge, it brings every packet past kube-proxy's rules, also
            // between two Pods of one node.
            files.push(of_node("cni/10-e2e.conflist", include_str!("../../configs/cni.conflist")));
        }
    }
    files
}

/// The configuration of CoreDNS, which keeps answers for so many seconds: those that a name does not exist, too.
fn corefile(cache: u32) -> String {
    let line = |indent: &str, word: &str| if cache == 0 { String::new() } else { format!("\n{indent}{word} {cache}") };
    include_str!("../../configs/Corefile")
        .replace("{dns-cache}", &line("    ", "cache"))
        .replace("{dns-ttl}", &line("        ", "ttl"))
}

/// A template with the files and addresses of the cluster, and of one of its nodes.
pub(super) fn filled(template: &str, layout: &Layout, node: Option<&Node>) -> String {
    let text = template
        .replace("{dir}", &layout.dir.to_string_lossy())
        .replace("{inside}", &layout.inside.to_string())
        .replace("{services}", layout.family.services())
        .replace("{any}", layout.family.any())
        .replace("{unspecified}", &layout.family.unspecified().to_string())
        .replace("{reverse-zone}", layout.family.reverse_zone())
        .replace("{network}", &layout.network);
    let Some(node) = node else { return text };
    text.replace("{node-dir}", &node.dir.to_string_lossy())
        .replace("{node}", &node.name)
        .replace("{address}", &node.address.to_string())
        .replace("{pod-subnet}", &node.pod_subnet)
        .replace("{cgroup}", &node.cgroup)
}

/// The file that stands for a sysctl in the cluster's mount namespace.
pub(super) fn sysctl_file(layout: &Layout, path: &str) -> PathBuf {
    layout.dir.join("sysctl").join(path.replace('/', "."))
}

#[cfg(test)]
mod tests {
    use super::corefile;

    #[test]
    fn corefile_with_cache_keeps_answers_as_long_as_they_say() {
        let cached = corefile(30);
        assert!(cached.contains("\n    cache 30\n") && cached.contains("\n        ttl 30\n"), "{cached}");
        assert!(!corefile(0).contains("cache") && !corefile(0).contains("ttl"));
    }
}
