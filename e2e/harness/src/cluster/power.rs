//! A node that loses its power, and gets it back: a reboot that nobody has announced.
//!
//! What a disk keeps stays: the kubelet's folder and containerd's records of sandboxes and containers. What memory holds is gone:
//! kubelet, containerd, shims and containers, what they have mounted, and with that the network namespaces of Pods.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use procfs::process::{Process, all_processes};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::components::{containerd_name, kubelet_name};
use super::handle::Cluster;
use super::layout::{containerd_socket, supervisor_socket};
use super::{network, readiness};
use crate::wait::{self, Check};

/// How long the kernel may take to end what was killed.
const KILLED: Duration = Duration::from_secs(30);
/// The name by which containerd starts its shims.
const SHIM: &str = "containerd-shim-runc-v2";
/// The folder of what containerd forgets in a reboot, in that of a node (`configs/containerd.toml`).
const STATE: &str = "containerd-state";

impl Cluster {
    /// Takes the power of a node: its kubelet, containerd, shims and containers end at once, and nobody is told.
    pub async fn power_off(&self, node: &str) -> Result<()> {
        // The kubelet first, so that it does not tell of the rest.
        self.stop_process(&kubelet_name(node), Duration::ZERO).await?;
        self.stop_process(&containerd_name(node), Duration::ZERO).await?;
        let dir = self.dir().join(node);
        let ended = || {
            let left = kill_shims(&containerd_socket(&dir))?;
            Ok(if left == 0 { Check::Met(()) } else { Check::Unmet(format!("{left} processes")) })
        };
        wait::until_met(KILLED, format!("the containers of {node} to end"), async || ended()).await?;
        let state = dir.join(STATE);
        network::unmount_below(&supervisor_socket(self.dir()), &state).await?;
        match tokio::fs::remove_dir_all(&state).await {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", state.display()))
            }
            _ => Ok(()),
        }
    }

    /// Gives a node its power back: containerd, then its kubelet.
    pub async fn power_on(&self, node: &str) -> Result<()> {
        let ctr = self.ready().node_programs.as_ref().context("a control plane has no nodes")?.join("ctr");
        self.restart_process(&containerd_name(node)).await?;
        readiness::containerd(&ctr, &containerd_socket(&self.dir().join(node))).await?;
        self.start_kubelet(node).await
    }

    /// Takes the power of a node, and gives it back at once.
    pub async fn reboot(&self, node: &str) -> Result<()> {
        self.power_off(node).await?;
        self.power_on(node).await
    }
}

/// Kills the shims of the containerd at this socket, with all that they have started. Returns how many processes there were.
fn kill_shims(socket: &Path) -> Result<usize> {
    let socket = socket.to_str().context("the path of the socket is not a text")?;
    let processes: Vec<(i32, i32, bool)> =
        all_processes().context("cannot list the processes")?.flatten().filter_map(|it| read(&it, socket)).collect();
    let mut doomed: BTreeSet<i32> = processes.iter().filter(|(.., is_shim)| *is_shim).map(|(pid, ..)| *pid).collect();
    // The processes of a container descend from its first one, which the shim has started.
    loop {
        let children = processes.iter().filter(|(_, parent, _)| doomed.contains(parent)).map(|(pid, ..)| *pid);
        let children: BTreeSet<i32> = children.collect();
        if children.is_subset(&doomed) {
            break;
        }
        doomed.extend(children);
    }
    for pid in doomed.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        match kill_process(pid, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => bail!("cannot kill process {}: {error}", pid.as_raw_nonzero()),
        }
    }
    Ok(doomed.len())
}

/// Its id, that of its parent, and whether it is a shim of this containerd. `None` for one that has ended.
fn read(process: &Process, socket: &str) -> Option<(i32, i32, bool)> {
    let stat = process.stat().ok().filter(|stat| stat.state != 'Z')?;
    let command = process.cmdline().unwrap_or_default();
    let is_shim = command.first().is_some_and(|program| program.rsplit('/').next() == Some(SHIM));
    Some((process.pid(), stat.ppid, is_shim && command.iter().any(|word| word == socket)))
}
