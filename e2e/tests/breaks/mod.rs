//! What breaks in the field, in both shapes of the agent: how long until `explain` and the conditions name the reason, and until the
//! group runs again.

mod kinds;
mod observe;

use std::cell::RefCell;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use jobset_harness::chart::Chart;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::Group;
use jobset_harness::images::BUSYBOX;
use jobset_harness::install;
use jobset_harness::prometheus::Prometheus;
use jobset_harness::workload::Workload;
use kube::api::PostParams;

use crate::kubelet::{binaries, monitoring};
use kinds::{Break, Outcome};
use observe::{Observer, Seen};

const MANIFEST: &str = include_str!("../../manifests/breakable.yaml");
const SHAPES: [&str; 2] = ["Sidecar", "Supervisor"];
/// Seconds within which `explain` and a condition name a reason, on a machine that has nothing else to do.
const FIGURES: [f64; 2] = [15.0, 60.0];

#[tokio::test]
#[ignore = "twenty minutes: make breaks"]
async fn each_break_is_explained_and_reported_in_both_shapes() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    install::install(&cluster, binaries().await?).await?;
    let prometheus = Prometheus::start(&cluster, install::NAMESPACE, &Chart::alerts()).await?;
    let (mut failures, mut rows) = (Vec::new(), Vec::new());
    for kind in Break::ALL {
        for shape in SHAPES {
            match of_shape(&cluster, kind, shape).await {
                Ok(seen) => rows.push(row(kind, shape, &seen)),
                Err(error) => failures.push(format!("{} {shape}: {error:#}", kind.name())),
            }
        }
    }
    println!("e2e: seconds from the break until explain, condition and recovery\n{}", rows.join("\n"));
    monitoring::rules_can_be_evaluated(&prometheus).await?;
    let empty = monitoring::empty_panels(&prometheus, "1h").await?;
    ensure!(empty.is_empty(), "after all that, these panels show nothing: {empty:?}");
    ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
    cluster.stop().await
}

async fn of_shape(cluster: &Cluster, kind: Break, shape: &str) -> Result<Seen> {
    let namespace = format!("{}-{}", kind.name(), shape.to_lowercase());
    install::create_namespace(&cluster.client(), &namespace).await?;
    kind.prepare(cluster, &namespace).await?;
    broken(cluster, kind, shape, &namespace).await
}

async fn broken(cluster: &Cluster, kind: Break, shape: &str, namespace: &str) -> Result<Seen> {
    let created = Instant::now();
    let group = create(cluster, kind, shape, namespace).await?;
    let (naming, seen) = (kind.naming(shape), RefCell::default());
    let mut observer = Observer { cluster, group: &group, naming, began: created, epoch: 0, seen };
    if !kind.is_of_birth() {
        observe::runs(cluster, &group).await?;
        observer.epoch = group.status().await?.synced_epoch;
        observer.began = Instant::now();
    }
    // A drain takes as long as the Pods that it evicts.
    tokio::try_join!(kind.strike(cluster, &group), observer.until_named())?;
    if kind.outcome() == Outcome::IsMended {
        kind.mend(cluster, namespace).await?;
    }
    if kind.outcome() != Outcome::Stays {
        observer.until_recovered().await?;
    }
    let seen = observer.seen.into_inner();
    println!("e2e: {} {shape}:", kind.name());
    for (second, said) in &seen.findings {
        println!("e2e:   {second:6.1} {said}");
    }
    group.remove().await?;
    Ok(seen)
}

async fn create(cluster: &Cluster, kind: Break, shape: &str, namespace: &str) -> Result<Group> {
    let jobset = serde_yaml_ng::from_str(&MANIFEST.replace("WORKER_IMAGE", BUSYBOX)).context("no YAML")?;
    let workload = kind.change(Workload(jobset).named(kind.name()).injected(shape));
    let group = Group::of(cluster, namespace, workload.name(), workload.pods());
    group.jobsets.create(&PostParams::default(), &serde_json::from_value(workload.0)?).await?;
    Ok(group)
}

/// A line of the table. What is later than the figure has a mark.
fn row(kind: Break, shape: &str, seen: &Seen) -> String {
    let cell = |seconds: Option<f64>, figure: f64| {
        seconds.map_or("-".to_owned(), |it| format!("{it:.1}{}", if it > figure { " late" } else { "" }))
    };
    format!(
        "| {} | {shape} | {} | {} | {} |",
        kind.name(),
        cell(seen.explained, FIGURES[0]),
        cell(seen.reported, FIGURES[1]),
        cell(seen.recovered, f64::INFINITY)
    )
}
