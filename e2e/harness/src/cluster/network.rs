//! The cluster's own mounts and network: one veth pair leads from the host to its namespace, and the host's route to
//! all of its addresses goes through it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use tokio::net::UnixStream;
use tokio::process::Command;

use super::configs::{KUBELET_SYSCTLS, sysctl_file};
use super::layout::Layout;
use super::supervisor::{Request, Response, ask};
use crate::programs::succeeded;

/// Joins the host and the cluster's network namespace.
pub(super) async fn connect(layout: &Layout) -> Result<()> {
    let socket = layout.supervisor();
    let init = init_pid(&socket).await?;
    let (device, host, inside) = (&layout.device, layout.host, layout.inside);
    host_ip(&format!("link add {device} type veth peer name eth0 netns {init}")).await?;
    host_ip(&format!("addr add {host}/24 dev {device}")).await?;
    host_ip(&format!("link set {device} up")).await?;
    run(&socket, "ip link set lo up").await?;
    run(&socket, &format!("ip addr add {inside}/24 dev eth0")).await?;
    for node in &layout.nodes {
        run(&socket, &format!("ip addr add {}/24 dev eth0", node.address)).await?;
    }
    run(&socket, "ip link set eth0 up").await?;
    host_ip(&format!("route add {} via {inside} dev {device}", layout.network)).await
}

/// Removes the veth pair; the kernel would do so, too, but some time after the namespace has ended.
pub(super) async fn disconnect(layout: &Layout) {
    // It may be gone by now, or never have been made.
    let _ = host_ip(&format!("link del {}", layout.device)).await;
}

/// Hides the places that kubelet and containerd name absolutely behind empty ones of the cluster's own.
pub(super) async fn mount(layout: &Layout) -> Result<()> {
    let socket = layout.supervisor();
    run(&socket, "mount -t tmpfs -o mode=755 run /run").await?;
    for dir in ["/var/lib/kubelet", "/var/log/containers"] {
        tokio::fs::create_dir_all(dir).await.with_context(|| format!("cannot create {dir}"))?;
        run(&socket, &format!("mount -t tmpfs -o mode=755 e2e {dir}")).await?;
    }
    for (path, _) in KUBELET_SYSCTLS {
        let args = ["--bind".into(), sysctl_file(layout, path).display().to_string(), format!("/proc/sys/{path}")];
        run_args(&socket, "mount", args.into()).await?;
    }
    Ok(())
}

/// The host's process id of the supervisor: who listens on a socket can be asked for by who connects.
async fn init_pid(socket: &Path) -> Result<i32> {
    let stream = UnixStream::connect(socket).await.context("the supervisor does not answer")?;
    stream.peer_cred().context("cannot ask for the supervisor")?.pid().context("the supervisor has no process id")
}

async fn host_ip(args: &str) -> Result<()> {
    let output = Command::new("ip").args(args.split(' ')).output().await.context("cannot run ip")?;
    succeeded(format_args!("ip {args}"), &output)
}

/// Runs a command whose words have no spaces inside the namespaces.
async fn run(socket: &Path, command: &str) -> Result<()> {
    let (program, args) = command.split_once(' ').unwrap_or((command, ""));
    run_args(socket, program, args.split(' ').map(str::to_owned).collect()).await
}

async fn run_args(socket: &Path, program: &str, args: Vec<String>) -> Result<()> {
    let request = Request::Run { program: program.into(), args };
    match ask(socket, &request).await? {
        Response::Output { success: true, .. } => Ok(()),
        Response::Output { stderr, .. } => bail!("in the cluster's namespaces, {request:?}: {}", stderr.trim()),
        _ => bail!("the supervisor gave no output for {request:?}"),
    }
}
