//! The owner of one cluster: brings it up, and takes it down when its holder ends, however that ends.
//!
//! Everything runs in PID, mount and network namespaces of the cluster. Their first process, the supervisor, ends when the
//! owner closes its pipe, and then the kernel kills all other processes at once. So the order of stopping does not matter.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};

use super::components::{Components, folders};
use super::configs;
use super::layout::{Layout, Options, Ready};
use super::network;
use super::pki::Authority;
use super::readiness::{self, Watched};
use super::slot::NetworkSlot;
use super::storage::Ending;
use super::supervisor::{Request, ask};
use super::{cgroups, storage};
use crate::programs::{GoPrograms, Set, Versions};
use crate::progress::{Phases, progress};
use crate::{deps, images, programs, wait};

/// Time limit for the cluster's namespaces to begin.
const BEGIN_LIMIT: Duration = Duration::from_secs(30);
const LISTEN_LIMIT: Duration = Duration::from_mins(2);
/// How long the namespaces may take to end.
const END_LIMIT: Duration = Duration::from_secs(20);
const MOST_NODES: usize = 200;

/// Brings up a cluster in `dir`, calls `ready` when it can be used, waits for `end`, and takes it down.
///
/// # Errors
/// When it cannot be brought up; what has come up until then is taken down, and the logs are kept.
pub async fn own(
    options: Options,
    dir: PathBuf,
    end: impl Future<Output = Ending>,
    ready: impl FnOnce(&Ready) -> Result<()>,
) -> Result<()> {
    let set = if options.nodes == 0 { Set::ControlPlane } else { Set::Cluster };
    deps::check(set)?;
    if options.nodes > MOST_NODES {
        bail!("{} nodes are asked for; at most {MOST_NODES} have addresses", options.nodes);
    }
    let versions = Versions::from_environment()?;
    let mut end = std::pin::pin!(end);
    let programs = tokio::select! {
        built = tokio::task::spawn_blocking(move || programs::ensure_versions(set, versions)) => built??,
        _ = &mut end => {
            progress("no cluster is started: standard input has ended, or a signal came");
            return Ok(());
        }
    };
    let _lock = storage::claim(&dir)?;
    let slot = NetworkSlot::take()?;
    let layout = Layout::new(&dir, &slot, &options);
    let mut namespaces = None;
    let outcome = tokio::select! {
        up = bring_up(&layout, &slot, &programs, &options, &mut namespaces) => match up.and_then(|up| ready(&up)) {
            Ok(()) => Ok(end.await),
            Err(error) => Err(error.context(format!("the cluster did not start; its logs: {}", dir.join("logs").display()))),
        },
        ending = &mut end => Ok(ending),
    };
    let down = take_down(namespaces, &slot, &layout).await;
    let ending = *outcome.as_ref().unwrap_or(&Ending::KeepLogs);
    storage::clear(&layout, ending)?;
    outcome.and(down)
}

async fn bring_up(
    layout: &Layout,
    slot: &NetworkSlot,
    programs: &GoPrograms,
    options: &Options,
    namespaces: &mut Option<Child>,
) -> Result<Ready> {
    let mut phases = Phases::start();
    write_files(layout, programs, options)?;
    if !layout.nodes.is_empty() {
        NetworkSlot::sweep()?;
        cgroups::create(&slot.name(), &layout.node_names())?;
    }
    *namespaces = Some(enter_namespaces(layout)?);
    let socket = layout.supervisor();
    wait::until(BEGIN_LIMIT, "the cluster's namespaces", || async {
        tokio::net::UnixStream::connect(&socket).await.map(Some).context("the supervisor does not answer")
    })
    .await?;
    if !layout.nodes.is_empty() {
        network::mount(layout).await?;
    }
    network::connect(layout).await?;
    phases.done("certificates, configuration and namespaces");

    let components = Components { layout, programs, options };
    let start = async |process| ask(&socket, &Request::Start(process)).await.map(|_| ());
    let watched = Watched { layout };
    start(components.etcd()?).await?;
    start(components.api_server()?).await?;
    for node in &layout.nodes {
        start(components.containerd(node)?).await?;
    }
    let client = readiness::client(&layout.kubeconfig("admin")).await?;
    // A kubelet looks at its runtime once in five seconds: containerd is to be ready before it.
    let images_and_server = async {
        if !layout.nodes.is_empty() {
            load_own_images(layout, programs).await?;
        }
        readiness::api_server(&client).await
    };
    watched.until("containerd and the API server", images_and_server).await?;
    let what = if layout.nodes.is_empty() { "" } else { ", images of the sandbox and of busybox loaded" };
    phases.done(format!("API server ready{what}"));

    start(components.controller_manager()?).await?;
    if !layout.nodes.is_empty() {
        start(components.scheduler()?).await?;
        start(components.proxy()?).await?;
        start(components.dns()?).await?;
        for node in &layout.nodes {
            let before = network::device_plugin_socket(layout).await?;
            start(components.kubelet(node)?).await?;
            let listens = wait::until(LISTEN_LIMIT, "its socket for device plugins", || async {
                let socket = network::device_plugin_socket(layout).await?;
                Ok(socket.filter(|socket| Some(*socket) != before).map(|_| ()))
            });
            watched.until(&format!("the kubelet of {}", node.name), listens).await?;
        }
    }
    watched.until("the controller manager", readiness::controller_manager(&client)).await?;
    phases.done("controller manager ready");
    if !layout.nodes.is_empty() {
        watched.until("every node to be ready", readiness::nodes(&client, layout.nodes.len())).await?;
        phases.done(format!("nodes ready: {}", layout.nodes.len()));
        watched.until("kube-proxy and CoreDNS", readiness::services(layout.inside)).await?;
        phases.done("kube-proxy and CoreDNS ready");
    }
    let ready = Ready {
        dir: layout.dir.clone(),
        kubeconfig: layout.kubeconfig("admin"),
        server: layout.server(),
        address: layout.inside,
        host_address: layout.host,
        nodes: layout.node_names(),
        owner: std::process::id(),
        programs: parent(&programs.path("kubectl")?),
        node_programs: programs.path("ctr").ok().map(|path| parent(&path)),
    };
    storage::record(&ready)?;
    Ok(ready)
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_path_buf()
}

fn write_files(layout: &Layout, programs: &GoPrograms, options: &Options) -> Result<()> {
    for folder in folders(layout) {
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let server = layout.server();
    let authority = Authority::create(&layout.dir.join("pki"))?;
    let mut names = vec!["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    names.extend(options.server_names.iter().map(String::as_str));
    authority.serving(
        "api-server",
        &names,
        &[layout.inside, layout.family.kubernetes_service(), Ipv4Addr::LOCALHOST.into()],
    )?;
    authority.client("admin", "e2e-admin", &["system:masters"], &server)?;
    for component in ["kube-controller-manager", "kube-scheduler", "kube-proxy"] {
        authority.client(component, &format!("system:{component}"), &[], &server)?;
    }
    for node in &layout.nodes {
        authority.client(&node.name, &format!("system:node:{}", node.name), &["system:nodes"], &server)?;
        authority.serving(&format!("{}-serving", node.name), &[&node.name], &[node.address])?;
    }
    let node_programs = if layout.nodes.is_empty() { None } else { Some((programs.path("runc")?, programs.cni()?)) };
    let node_programs = node_programs.as_ref().map(|(runc, cni)| (runc.as_path(), cni.as_path()));
    for (path, content) in configs::files(layout, options, node_programs) {
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Starts the supervisor as the first process of new namespaces.
fn enter_namespaces(layout: &Layout) -> Result<Child> {
    let log = File::create(layout.log("supervisor")).context("cannot create the supervisor's log")?;
    Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount", "--net", "--mount-proc", "--"])
        .arg(own_program()?)
        .arg("supervise")
        .arg(layout.supervisor())
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-C at the terminal is for the holder, whose end ends the rest in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .context("cannot run unshare: apt-get install util-linux")
}

/// The path of this program, also when a build has replaced the file since it started.
fn own_program() -> Result<PathBuf> {
    let path = std::env::current_exe().context("cannot find the own program")?;
    let current = path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(current.unwrap_or(path))
}

async fn load_own_images(layout: &Layout, programs: &GoPrograms) -> Result<()> {
    let pause = images::pause(&programs.path("pause")?)?;
    let busybox = images::busybox()?;
    let ctr = programs.path("ctr")?;
    for image in [pause, busybox] {
        futures::future::try_join_all(
            layout.nodes.iter().map(|node| readiness::load_image(&ctr, node.containerd_socket(), &image)),
        )
        .await?;
    }
    Ok(())
}

async fn take_down(namespaces: Option<Child>, slot: &NetworkSlot, layout: &Layout) -> Result<()> {
    if let Some(mut child) = namespaces {
        drop(child.stdin.take());
        if tokio::time::timeout(END_LIMIT, child.wait()).await.is_err() {
            child.kill().await.context("cannot end the cluster's namespaces")?;
        }
    }
    network::disconnect(layout).await;
    if !layout.nodes.is_empty() {
        let name = slot.name();
        tokio::task::spawn_blocking(move || cgroups::remove(&name)).await??;
    }
    Ok(())
}
