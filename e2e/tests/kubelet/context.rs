//! `make demo CONTEXT=…`: the demo in a cluster that is not its own.

use std::process::Output;

use anyhow::{Context, Result, bail};
use jobset_demo::Logs;
use jobset_harness::cluster::{Cluster, ControlPlane, Handle};
use jobset_harness::group::LIMIT;
use jobset_harness::images::Repository;
use jobset_harness::install::create_namespace;
use jobset_harness::process::{Pid, Signal};
use jobset_harness::programs::beside;
use jobset_harness::workload::{RECREATE, Workload};
use jobset_harness::{install, wait};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{ListParams, LogParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use rustix::process::kill_process;
use serde_json::{Value, json};
use tokio::process::Command;

use super::binaries;
use crate::seat::take_seat;

/// The demo, with one failure of each group, as somebody runs it whose kubectl is at this cluster.
fn demo(handle: &Handle, args: &[&str]) -> Result<Command> {
    let kubectl = handle.kubectl_path();
    let folder = kubectl.parent().context("kubectl is in no folder")?;
    let mut demo = Command::new(beside("demo")?);
    demo.args(["--runs", "1", "--context"]).args(args).env("KUBECONFIG", handle.kubeconfig()).env("PATH", folder);
    demo.kill_on_drop(true);
    Ok(demo)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

async fn stages(handle: &Handle) -> Result<Vec<String>> {
    let namespaces: Api<Namespace> = Api::all(handle.client());
    let all = namespaces.list(&ListParams::default()).await?.items;
    Ok(all.iter().map(ResourceExt::name_any).filter(|name| name.starts_with("jobset-demo-")).collect())
}

#[tokio::test]
async fn demo_in_foreign_cluster_installs_product_and_removes_its_namespace() -> Result<()> {
    take_seat().await?;
    let cluster = Cluster::start(2).await?;
    install::load_images(&cluster, binaries().await?).await?;
    let results = tempfile::tempdir()?;
    let folder = results.path().to_string_lossy().into_owned();

    let output = demo(&cluster, &["--results", &folder])?.output().await?;
    assert!(output.status.success(), "{}", said(&output));
    let summary: Value = serde_json::from_slice(&std::fs::read(results.path().join("summary.json"))?)?;
    assert_eq!(summary["in_place"]["same_uid"], 4, "{}", said(&output));
    assert_eq!(summary["recreate"]["same_uid"], 0, "{}", said(&output));
    assert!(said(&output).contains("the product stays installed"), "{}", said(&output));
    assert_eq!(stages(&cluster).await?, Vec::<String>::new());

    let output = demo(&cluster, &["--registry", "localhost/absent", "--results", &folder])?.output().await?;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("localhost/absent/jobset-agent:dev"), "{}", said(&output));
    assert!(said(&output).contains("kind load image-archive"), "{}", said(&output));
    assert_eq!(stages(&cluster).await?, Vec::<String>::new());

    let running = demo(&cluster, &["--results", &folder])?.stdout(std::process::Stdio::null()).spawn()?;
    wait::until(LIMIT, "a namespace of the demo", || async { Ok((!stages(&cluster).await?.is_empty()).then_some(())) })
        .await?;
    let pid = running.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).context("the demo has ended")?;
    kill_process(pid, Signal::INT)?;
    let output = running.wait_with_output().await?;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stages(&cluster).await?, Vec::<String>::new());
    log_of_pod_unknown_to_kubelet_is_read_later(&cluster).await?;
    cluster.stop().await
}

/// A kubelet that has not heard of a Pod answers that its log is not found; so does one that is asked in another's place.
async fn log_of_pod_unknown_to_kubelet_is_read_later(cluster: &Cluster) -> Result<()> {
    let nodes: Api<Node> = Api::all(cluster.client());
    let other = nodes.get(&cluster.nodes()[1]).await?.status.and_then(|status| status.addresses);
    let other = json!({"status": {"addresses": other}});

    create_namespace(&cluster.client(), "unknown").await?;
    let mut spec = Value::Null;
    Workload::without_journal(RECREATE, "unknown", &Repository::default())?.each_pod(|pod| spec = pod.clone());
    spec["nodeName"] = json!(cluster.nodes()[0]);
    let pod = serde_json::from_value(json!({"metadata": {"name": "worker"}, "spec": spec}))?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "unknown");
    let pod = pods.create(&PostParams::default(), &pod).await?;
    // The kubelet of the node puts its own address back, sooner or later.
    wait::until(LIMIT, "the answer of another kubelet", || async {
        nodes.patch_status(&cluster.nodes()[0], &PatchParams::default(), &Patch::Merge(&other)).await?;
        match pods.logs("worker", &LogParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Some(())),
            answer => bail!("{answer:?}"),
        }
    })
    .await?;

    let logs = Logs::new(cluster.client(), "unknown");
    logs.follow(&pod);
    wait::until(LIMIT, "the start of the worker", || async { Ok(logs.entries().pop()) }).await.map(drop)
}

#[tokio::test]
async fn demo_in_unfit_cluster_names_what_is_missing() -> Result<()> {
    let gate = "--feature-gates=RestartAllContainersOnContainerExits=false";
    take_seat().await?;
    let plane = ControlPlane::builder().api_server_arg(gate).control_plane().await?;
    let output = demo(&plane, &[])?.output().await?;
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let wanted = [
        "this cluster cannot restart Pods in place: its API server refuses the action RestartAllContainers",
        "it has no nodes",
        "needs Kubernetes 1.36, or 1.35 with the feature gate RestartAllContainersOnContainerExits",
    ];
    assert!(wanted.iter().all(|text| said(&output).contains(text)), "{}", said(&output));
    assert_eq!(stages(&plane).await?, Vec::<String>::new());
    let output = demo(&plane, &["nobodys"])?.output().await?;
    assert!(said(&output).contains("cannot use the context nobodys"), "{}", said(&output));
    plane.stop().await
}
