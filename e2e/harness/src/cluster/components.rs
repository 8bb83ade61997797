//! The command lines of a cluster's processes: pure functions of its layout.

use std::path::PathBuf;

use anyhow::Result;

use super::layout::{Layout, Node, Options, SERVICE_RANGE};
use super::supervisor::ProcessDefinition;
use crate::programs::GoPrograms;

/// The URL of etcd; the loopback device is the cluster's own.
const ETCD: &str = "http://127.0.0.1:2379";

/// Makes processes: a program of the set, with its log in the cluster's folder.
pub(super) struct Components<'a> {
    pub(super) layout: &'a Layout,
    pub(super) programs: &'a GoPrograms,
    pub(super) options: &'a Options,
}

impl Components<'_> {
    fn process(&self, name: &str, program: &str, args: Vec<String>) -> Result<ProcessDefinition> {
        let env =
            [("PATH", self.programs.search_path()), ("TMPDIR", self.layout.dir.join("tmp").display().to_string())];
        Ok(ProcessDefinition {
            name: name.to_owned(),
            program: self.programs.path(program)?,
            args,
            env: env.map(|(key, value)| (key.to_owned(), value)).into(),
            log: self.layout.log(name),
        })
    }

    /// etcd; its state is thrown away, so it need not be safe from a crash of the machine.
    pub(super) fn etcd(&self) -> Result<ProcessDefinition> {
        let args = flags([
            ("data-dir", self.layout.dir.join("etcd").display().to_string()),
            ("listen-client-urls", ETCD.into()),
            ("advertise-client-urls", ETCD.into()),
            ("listen-peer-urls", "http://127.0.0.1:2380".into()),
            ("quota-backend-bytes", (8_u64 << 30).to_string()),
            ("unsafe-no-fsync", "true".into()),
            ("log-level", "warn".into()),
        ]);
        self.process("etcd", "etcd", args)
    }

    /// kube-apiserver.
    pub(super) fn api_server(&self) -> Result<ProcessDefinition> {
        let layout = self.layout;
        let pki = |name: &str| layout.pki(name).display().to_string();
        let mut args = flags([
            ("etcd-servers", ETCD.into()),
            ("advertise-address", layout.inside.to_string()),
            ("secure-port", "6443".into()),
            ("service-cluster-ip-range", SERVICE_RANGE.into()),
            ("tls-cert-file", pki("api-server.crt")),
            ("tls-private-key-file", pki("api-server.key")),
            ("client-ca-file", pki("ca.crt")),
            ("authorization-mode", "Node,RBAC".into()),
            ("enable-admission-plugins", "NodeRestriction".into()),
            ("service-account-issuer", "https://kubernetes.default.svc".into()),
            ("service-account-key-file", pki("service-account.pub")),
            ("service-account-signing-key-file", pki("service-account.key")),
            ("kubelet-certificate-authority", pki("ca.crt")),
            ("kubelet-client-certificate", pki("admin.crt")),
            ("kubelet-client-key", pki("admin.key")),
            ("kubelet-preferred-address-types", "InternalIP".into()),
            // Webhooks by Service are reached at their endpoints: the control plane alone has no kube-proxy.
            ("enable-aggregator-routing", "true".into()),
            ("allow-privileged", "true".into()),
            ("max-requests-inflight", "4000".into()),
            ("max-mutating-requests-inflight", "2000".into()),
        ]);
        if self.options.audit {
            args.extend(flags([
                ("audit-policy-file", layout.dir.join("audit-policy.json").display().to_string()),
                ("audit-log-path", layout.dir.join("logs/audit.log").display().to_string()),
            ]));
        }
        args.extend(self.options.api_server_args.iter().cloned());
        self.process("kube-apiserver", "kube-apiserver", args)
    }

    /// kube-controller-manager; its client limits are raised for large runs.
    pub(super) fn controller_manager(&self) -> Result<ProcessDefinition> {
        let pki = |name: &str| self.layout.pki(name).display().to_string();
        let mut args = flags([
            ("kubeconfig", self.kubeconfig("kube-controller-manager")),
            ("bind-address", "127.0.0.1".into()),
            ("root-ca-file", pki("ca.crt")),
            ("service-account-private-key-file", pki("service-account.key")),
            ("use-service-account-credentials", "true".into()),
            ("leader-elect", "false".into()),
            ("kube-api-qps", "1000".into()),
            ("kube-api-burst", "2000".into()),
            ("concurrent-job-syncs", "20".into()),
            // A new node keeps its not-ready taint until the next look, by default up to five seconds.
            ("node-monitor-period", "500ms".into()),
        ]);
        args.extend(self.options.controller_manager_args.iter().cloned());
        self.process("kube-controller-manager", "kube-controller-manager", args)
    }

    /// kube-scheduler.
    pub(super) fn scheduler(&self) -> Result<ProcessDefinition> {
        let args = flags([
            ("kubeconfig", self.kubeconfig("kube-scheduler")),
            ("bind-address", "127.0.0.1".into()),
            ("leader-elect", "false".into()),
            ("kube-api-qps", "1000".into()),
            ("kube-api-burst", "2000".into()),
        ]);
        self.process("kube-scheduler", "kube-scheduler", args)
    }

    /// kube-proxy; one serves all nodes, which share the network namespace.
    pub(super) fn proxy(&self) -> Result<ProcessDefinition> {
        self.process("kube-proxy", "kube-proxy", flags([("config", self.file("kube-proxy.json"))]))
    }

    /// CoreDNS, at the cluster's own address.
    pub(super) fn dns(&self) -> Result<ProcessDefinition> {
        self.process("coredns", "coredns", vec!["-conf".into(), self.file("Corefile")])
    }

    /// The containerd of one node.
    pub(super) fn containerd(&self, node: &Node) -> Result<ProcessDefinition> {
        let config = node.dir.join("containerd.toml").display().to_string();
        self.process(&format!("containerd-{}", node.name), "containerd", vec!["--config".into(), config])
    }

    /// The kubelet of one node.
    pub(super) fn kubelet(&self, node: &Node) -> Result<ProcessDefinition> {
        let in_node = |name: &str| node.dir.join(name).display().to_string();
        let args = flags([
            ("config", in_node("kubelet.json")),
            ("kubeconfig", self.kubeconfig(&node.name)),
            ("root-dir", in_node("kubelet")),
            ("cert-dir", in_node("kubelet/pki")),
            ("hostname-override", node.name.clone()),
            ("node-ip", node.address.to_string()),
            ("v", "2".into()),
        ]);
        self.process(&kubelet_name(&node.name), "kubelet", args)
    }

    fn kubeconfig(&self, name: &str) -> String {
        self.layout.kubeconfig(name).display().to_string()
    }

    fn file(&self, name: &str) -> String {
        self.layout.dir.join(name).display().to_string()
    }
}

/// The supervisor's name for the kubelet of a node.
pub(super) fn kubelet_name(node: &str) -> String {
    format!("kubelet-{node}")
}

/// The folders that must exist before the processes start.
pub(super) fn folders(layout: &Layout) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = ["logs", "tmp", "shared", "sysctl"].map(|name| layout.dir.join(name)).into();
    for node in &layout.nodes {
        folders.extend(["cni", "kubelet", "pod-logs", "volume-plugins"].map(|name| node.dir.join(name)));
    }
    folders
}

fn flags<const N: usize>(flags: [(&str, String); N]) -> Vec<String> {
    flags.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
}
