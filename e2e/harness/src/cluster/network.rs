//! The cluster's own mounts and network: one veth pair leads from the host to its namespace, and the host's route to
//! all of its addresses goes through it.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use procfs::process::Process;
use tokio::net::UnixStream;
use tokio::process::Command;

use super::configs::{KUBELET_SYSCTLS, sysctl_file};
use super::layout::Layout;
use crate::programs::succeeded;

/// Joins the host and the cluster's network namespace.
pub(super) async fn connect(layout: &Layout) -> Result<()> {
    let init = init_pid(&layout.supervisor()).await?;
    let (device, host, inside, family) = (&layout.device, layout.host, layout.inside, layout.family);
    let (prefix, at_once) = (family.subnet(), family.at_once());
    run(&format!("ip link add {device} type veth peer name eth0 netns {init}"), &[]).await?;
    run(&format!("ip addr add {host}/{prefix} dev {device}{at_once}"), &[]).await?;
    run(&format!("ip link set {device} up"), &[]).await?;
    run_in(init, "ip link set lo up", &[]).await?;
    run_in(init, &format!("ip addr add {inside}/{prefix} dev eth0{at_once}"), &[]).await?;
    for node in &layout.nodes {
        run_in(init, &format!("ip addr add {}/{prefix} dev eth0{at_once}", node.address), &[]).await?;
    }
    run_in(init, "ip link set eth0 up", &[]).await?;
    // Programs in the network of a node look for a route before kube-proxy's rules turn the address of a Service into another one.
    // Real nodes have a default route; this one leads nowhere else.
    run_in(init, &format!("ip route add {} dev eth0", family.services()), &[]).await?;
    run(&format!("ip route add {} via {inside} dev {device}", layout.network), &[]).await
}

/// Joins the networks of two clusters, each named by its supervisor's socket and the address of its API server: Pods of one reach
/// nodes and Pods of the other. The veth pair ends with the first of the namespaces. Only clusters of IPv4 are joined.
pub(super) async fn join(one: (&Path, IpAddr), other: (&Path, IpAddr)) -> Result<()> {
    let (IpAddr::V4(address_of_one), IpAddr::V4(address_of_other)) = (one.1, other.1) else {
        bail!("clusters of IPv6 cannot be joined")
    };
    let (one, other) = ((one.0, address_of_one), (other.0, address_of_other));
    let (first, second) = (init_pid(one.0).await?, init_pid(other.0).await?);
    let device_to = |address: Ipv4Addr| format!("to-{}", address.octets()[1]);
    let (to_second, to_first) = (device_to(other.1), device_to(one.1));
    // From the host's own PID namespace, in which both have these process ids.
    let pair = format!("ip link add {to_second} type veth peer name {to_first} netns {second}");
    run_in_network(first, &pair, &[]).await?;
    for (init, device, to) in [(first, to_second, other.1), (second, to_first, one.1)] {
        run_in(init, &format!("ip link set {device} up"), &[]).await?;
        let [first, second, ..] = to.octets();
        // The other end answers for its own address alone, and knows the way to the rest.
        run_in(init, &format!("ip route add {first}.{second}.0.0/16 via {to} dev {device} onlink"), &[]).await?;
    }
    Ok(())
}

/// Removes the veth pair; the kernel would do so, too, but some time after the namespace has ended.
pub(super) async fn disconnect(layout: &Layout) {
    // It may be gone by now, or never have been made.
    let _ = run(&format!("ip link del {}", layout.device), &[]).await;
}

/// Hides the places that kubelet and containerd name absolutely behind empty ones of the cluster's own.
pub(super) async fn mount(layout: &Layout) -> Result<()> {
    let init = init_pid(&layout.supervisor()).await?;
    run_in(init, "mount -t tmpfs -o mode=755 run /run", &[]).await?;
    for dir in ["/var/lib/kubelet", "/var/log/containers"] {
        tokio::fs::create_dir_all(dir).await.with_context(|| format!("cannot create {dir}"))?;
        run_in(init, &format!("mount -t tmpfs -o mode=755 e2e {dir}"), &[]).await?;
    }
    for (path, _) in KUBELET_SYSCTLS {
        let file = sysctl_file(layout, path);
        run_in(init, "mount --bind", &[&file.to_string_lossy(), &format!("/proc/sys/{path}")]).await?;
    }
    Ok(())
}

/// The inode of the socket on which the kubelets of a cluster register device plugins, if it exists. Its path is fixed, so the
/// kubelets share it: each removes the socket of the one before it, and two that start at once hinder each other.
pub(super) async fn device_plugin_socket(layout: &Layout) -> Result<Option<u64>> {
    let init = init_pid(&layout.supervisor()).await?;
    let socket = format!("/proc/{init}/root/var/lib/kubelet/device-plugins/kubelet.sock");
    Ok(tokio::fs::metadata(socket).await.ok().map(|socket| socket.ino()))
}

/// Unmounts all that is mounted below this folder in the cluster's own namespace, the last first.
pub(super) async fn unmount_below(supervisor: &Path, dir: &Path) -> Result<()> {
    let init = init_pid(supervisor).await?;
    let mounts = Process::new(init)?.mountinfo().context("cannot read the mounts of the cluster")?;
    let below = mounts.0.into_iter().map(|mount| mount.mount_point).filter(|point| point.starts_with(dir));
    let mut points: Vec<String> = below.map(|point| point.to_string_lossy().into_owned()).collect();
    points.reverse();
    if points.is_empty() {
        return Ok(());
    }
    let points: Vec<&str> = points.iter().map(String::as_str).collect();
    run_in(init, "umount --lazy", &points).await
}

/// Runs `nft` with this script in the network namespace of a cluster: its nodes, not its Pods. The rules end with the namespace.
pub(super) async fn nft(supervisor: &Path, script: &str) -> Result<()> {
    let init = init_pid(supervisor).await?;
    run_in_network(init, "nft", &[script]).await
}

/// The host's process id of the supervisor: who listens on a socket can be asked for by who connects.
async fn init_pid(socket: &Path) -> Result<i32> {
    let stream = UnixStream::connect(socket).await.context("the supervisor does not answer")?;
    stream.peer_cred().context("cannot ask for the supervisor")?.pid().context("the supervisor has no process id")
}

/// Runs a command of the host in the network namespace of the process `init`.
async fn run_in_network(init: i32, command: &str, paths: &[&str]) -> Result<()> {
    run(&format!("nsenter --target {init} --net -- {command}"), paths).await
}

/// Runs a command inside the namespaces of the process `init`.
async fn run_in(init: i32, command: &str, paths: &[&str]) -> Result<()> {
    run(&format!("nsenter --target {init} --mount --net --pid -- {command}"), paths).await
}

/// Runs a command whose words have no spaces, with paths as its last arguments.
async fn run(command: &str, paths: &[&str]) -> Result<()> {
    let (program, args) = command.split_once(' ').unwrap_or((command, ""));
    let output = Command::new(program).args(args.split(' ')).args(paths).output().await;
    succeeded(format_args!("{command} {}", paths.join(" ")), &output.with_context(|| format!("cannot run {program}"))?)
}
