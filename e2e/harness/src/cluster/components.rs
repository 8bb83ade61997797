//! The command lines of a cluster's processes, made from the lists of flags in `e2e/harness/configs`.

use std::path::PathBuf;

use anyhow::Result;

use super::configs::filled;
use super::layout::{Layout, Node, Options};
use super::supervisor::ProcessDefinition;
use crate::programs::GoPrograms;

/// Makes processes: a program of the set, with its log in the cluster's folder.
pub(super) struct Components<'a> {
    pub(super) layout: &'a Layout,
    pub(super) programs: &'a GoPrograms,
    pub(super) options: &'a Options,
}

impl Components<'_> {
    pub(super) fn etcd(&self) -> Result<ProcessDefinition> {
        self.process("etcd", None, include_str!("../../configs/etcd.flags"), &[])
    }

    pub(super) fn api_server(&self) -> Result<ProcessDefinition> {
        let list = include_str!("../../configs/kube-apiserver.flags");
        let audit = if self.options.audit { include_str!("../../configs/audit.flags") } else { "" };
        self.process("kube-apiserver", None, &[list, audit].concat(), &self.options.api_server_args)
    }

    pub(super) fn controller_manager(&self) -> Result<ProcessDefinition> {
        let list = include_str!("../../configs/kube-controller-manager.flags");
        self.process("kube-controller-manager", None, list, &self.options.controller_manager_args)
    }

    pub(super) fn scheduler(&self) -> Result<ProcessDefinition> {
        self.process(
            "kube-scheduler",
            None,
            include_str!("../../configs/kube-scheduler.flags"),
            &self.options.scheduler_args,
        )
    }

    /// kube-proxy; one serves all nodes, which share the network namespace.
    pub(super) fn proxy(&self) -> Result<ProcessDefinition> {
        self.process("kube-proxy", None, "--config={dir}/kube-proxy.yaml", &[])
    }

    /// CoreDNS, at the cluster's own address.
    pub(super) fn dns(&self) -> Result<ProcessDefinition> {
        self.process("coredns", None, "-conf={dir}/Corefile", &[])
    }

    pub(super) fn containerd(&self, node: &Node) -> Result<ProcessDefinition> {
        self.process("containerd", Some(node), "--config={node-dir}/containerd.toml", &[])
    }

    pub(super) fn kubelet(&self, node: &Node) -> Result<ProcessDefinition> {
        self.process("kubelet", Some(node), include_str!("../../configs/kubelet.flags"), &self.options.kubelet_args)
    }

    /// A program with the flags of a list, one a line (other lines are comments), and more of them.
    fn process(&self, program: &str, node: Option<&Node>, list: &str, more: &[String]) -> Result<ProcessDefinition> {
        let name = node.map_or_else(|| program.to_owned(), |node| format!("{program}-{}", node.name));
        let flags = filled(list, self.layout, node);
        let flags = flags.lines().filter(|line| line.starts_with('-')).map(str::to_owned);
        let env =
            [("PATH", self.programs.search_path()), ("TMPDIR", self.layout.dir.join("tmp").display().to_string())];
        Ok(ProcessDefinition {
            program: self.programs.path(program)?,
            args: flags.chain(more.iter().cloned()).collect(),
            env: env.map(|(key, value)| (key.to_owned(), value)).into(),
            log: self.layout.log(&name),
            name,
        })
    }
}

/// The supervisor's name for the kubelet of a node.
pub(super) fn kubelet_name(node: &str) -> String {
    format!("kubelet-{node}")
}

/// The supervisor's name for the containerd of a node.
pub(super) fn containerd_name(node: &str) -> String {
    format!("containerd-{node}")
}

/// The folders that must exist before the processes start.
pub(super) fn folders(layout: &Layout) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = ["logs", "tmp", "shared", "sysctl"].map(|name| layout.dir.join(name)).into();
    for node in &layout.nodes {
        folders.extend(["cni", "kubelet", "pod-logs", "volume-plugins"].map(|name| node.dir.join(name)));
    }
    folders
}
