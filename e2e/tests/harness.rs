//! The harness itself: clusters have the versions that are named, control planes run side by side, and nothing is left of them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use jobset_harness::programs::Versions;
use jobset_harness::wait::{self, Check};
use jobset_harness::{Cluster, ControlPlane, cluster, images};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, ListParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::objects::{create, running, shell};
use crate::seat::take_seat;

const LIMIT: Duration = Duration::from_mins(2);

/// The environment may name an older version for the kubelets than for the control plane.
#[tokio::test]
async fn api_server_and_kubelets_have_the_versions_that_are_named() -> Result<()> {
    take_seat().await?;
    let cluster = cluster::shared().await?;
    let client = cluster.client();
    let versions = Versions::from_environment()?;
    assert_eq!(client.apiserver_version().await?.git_version, versions.control_plane.release());
    let nodes = Api::<Node>::all(client).list(&ListParams::default()).await?.items;
    let kubelets: Vec<String> =
        nodes.into_iter().filter_map(|node| Some(node.status?.node_info?.kubelet_version)).collect();
    assert_eq!(kubelets, vec![versions.kubelets.release(); cluster.nodes().len()]);
    Ok(())
}

#[tokio::test]
async fn control_planes_share_no_objects_and_survive_restart() -> Result<()> {
    take_seat().await?;
    let audited = ControlPlane::builder().audit_log();
    let (one, two) = tokio::try_join!(audited.control_plane(), ControlPlane::start())?;
    assert_ne!(one.ready().server, two.ready().server);
    let in_one: Api<ConfigMap> = Api::default_namespaced(one.client());
    let in_two: Api<ConfigMap> = Api::default_namespaced(two.client());
    create(&in_one, json!({ "metadata": { "name": "mine" } })).await?;
    assert!(in_two.get_opt("mine").await?.is_none(), "the control planes share their state");

    one.stop_api_server().await?;
    assert!(in_one.get("mine").await.is_err(), "a stopped API server answers");
    one.start_api_server().await?;
    in_one.get("mine").await.context("after the restart")?;
    let audit = fs::read_to_string(one.dir().join("logs/audit.log")).context("the audit log")?;
    assert!(audit.contains("configmaps/mine"), "the audit log misses a request");
    let dir = one.dir().to_path_buf();
    one.stop().await?;
    assert!(!dir.exists(), "{} is left", dir.display());
    two.stop().await
}

#[tokio::test]
async fn owner_killed_leaves_no_process_no_mount_and_no_device() -> Result<()> {
    take_seat().await?;
    let cluster = Cluster::start(1).await?;
    let node = cluster.nodes().first().context("no node")?.clone();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    create(
        &pods,
        json!({
            "metadata": { "name": "sleeper" },
            "spec": { "containers": [{
                "name": "c", "image": images::BUSYBOX, "args": ["-c", "exec sleep 100000"],
                "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }],
            }], "volumes": [{ "name": "shared", "hostPath": { "path": cluster.shared_dir() } }] },
        }),
    )
    .await?;
    let before = running(&pods, "sleeper").await?;

    // A stopped kubelet leaves its containers running, and finds them again.
    cluster.stop_kubelet(&node).await?;
    cluster.start_kubelet(&node).await?;
    wait::until(LIMIT, "the kubelet to serve again", || async {
        shell(&cluster, "default", "sleeper", "echo from the Pod > /shared/note").await.map(Some)
    })
    .await?;
    assert_eq!(fs::read_to_string(cluster.shared_dir().join("note"))?, "from the Pod\n");
    let restarts = |pod: &Pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
        statuses.unwrap_or_default().first().map(|status| status.restart_count)
    };
    assert_eq!(restarts(&pods.get("sleeper").await?), restarts(&before));

    let dir = cluster.dir().to_path_buf();
    assert!(
        !traces(&dir, &cluster.ready().host_address.to_string())?.is_empty(),
        "traces of a running cluster are seen"
    );
    let address = cluster.ready().host_address.to_string();
    let before = cgroups(&address)?;
    assert!(!before.is_empty(), "cgroups of a running cluster are seen");
    let owner = Pid::from_raw(i32::try_from(cluster.owner_pid())?).context("the owner has no process id")?;
    kill_process(owner, Signal::KILL)?;
    // The handle keeps the killed owner as a zombie of this process, which is no trace.
    wait::until_met(LIMIT, "nothing to be left of the cluster", || async {
        let left = traces(&dir, &address)?;
        Ok(if left.is_empty() { Check::Met(()) } else { Check::Unmet(left.join("; ")) })
    })
    .await?;
    drop(cluster);
    cluster::down(&dir)?;
    assert!(!dir.exists(), "{} is left", dir.display());
    // Another cluster that starts meanwhile may have removed them already, and have made its own of the same names.
    let left: Vec<_> = cgroups(&address)?.into_iter().filter(|cgroup| before.contains(cgroup)).collect();
    assert!(left.is_empty(), "left: {left:?}");
    Ok(())
}

/// The cgroups of the cluster with this host address, in every hierarchy of either version, each with its inode.
fn cgroups(address: &str) -> Result<Vec<(String, u64)>> {
    let slot = address.split('.').nth(1).context("not an address")?;
    let roots = procfs::mounts()?.into_iter().filter(|mount| mount.fs_vfstype.starts_with("cgroup"));
    let dirs = roots.map(|mount| format!("{}/jobset-e2e-{slot}", mount.fs_file));
    Ok(dirs.filter_map(|dir| fs::metadata(&dir).ok().map(|found| (dir, found.ino()))).collect())
}

/// What is left of the cluster in `dir`: processes, mounts in any namespace, the device with the host's address.
fn traces(dir: &Path, address: &str) -> Result<Vec<String>> {
    let dir = dir.to_str().context("not a text")?;
    let mut traces = Vec::new();
    for process in procfs::process::all_processes()?.flatten() {
        let command = process.cmdline().unwrap_or_default().join(" ");
        if command.contains(dir) {
            traces.push(format!("process {}: {command}", process.pid));
        }
        let mounts = fs::read(format!("/proc/{}/mountinfo", process.pid)).unwrap_or_default();
        if String::from_utf8_lossy(&mounts).contains(&format!("{dir}/")) {
            traces.push(format!("a mount in the namespace of process {}", process.pid));
        }
    }
    if fs::read_to_string("/proc/net/fib_trie")?.lines().any(|line| line.trim().ends_with(&format!(" {address}"))) {
        traces.push(format!("the address {address}"));
    }
    Ok(traces)
}
