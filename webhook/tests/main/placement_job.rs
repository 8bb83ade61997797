//! Whole Jobs that are placed exclusively, as the JobSet's controller builds them, by the Job controller and the scheduler
//! that Kubernetes has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context as _, Result};
use jobset_api::{JobSet, labels};
use jobset_harness::ControlPlane;
use jobset_harness::wait::{self, Check};
use jobset_rules::build::{self, Attempt, JobPlace};
use jobset_store::PriorityClasses;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::cluster::{LIMIT, Plane, Replica};
use crate::exclusive::Space;

const PODS: usize = 8;

/// A control plane with a scheduler, nodes that nobody runs, and admission.
struct Racks {
    space: Space,
    replica: Replica,
}

impl Racks {
    /// Starts it with racks of two nodes each.
    async fn start(namespace: &'static str, racks: &[&str], arguments: &[&str]) -> Result<Self> {
        // The nodes have no kubelet that would say that they are alive.
        let builder = ControlPlane::builder().controller_manager_arg("--controllers=*,-node-lifecycle-controller");
        let space = Space::alone(Plane::of(builder.control_plane().await?).await?, namespace).await?;
        let plane = space.plane;
        for rack in racks {
            for node in 1..=2 {
                space.usable_node(&format!("{rack}-{node}"), rack).await?;
            }
        }
        let replica = plane.admission_with(arguments).await?;
        plane.check_placement().await?;
        let scheduler = plane.plane.kubectl_path().with_file_name("kube-scheduler");
        let kubeconfig = format!("--kubeconfig={}", plane.plane.kubeconfig().display());
        let arguments = [&*kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1"];
        plane.plane.start_program("kube-scheduler", &scheduler, &arguments, &[]).await?;
        Ok(Self { space, replica })
    }
}

impl Space {
    /// A node on which the scheduler puts Pods.
    async fn usable_node(&self, name: &str, rack: &str) -> Result<()> {
        self.node(name, Some(rack)).await?;
        let room = json!({ "cpu": "64", "memory": "64Gi", "pods": "110" });
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let status = json!({ "status": { "capacity": room, "allocatable": room, "conditions": ready } });
        self.nodes().patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await?;
        let untainted = json!({ "spec": { "taints": null } });
        self.nodes().patch(name, &PatchParams::default(), &Patch::Merge(untainted)).await?;
        Ok(())
    }

    /// A JobSet whose Jobs are placed by rack.
    async fn exclusive(&self) -> Result<JobSet> {
        let jobset = json!({
            "metadata": { "name": "train", "annotations": { labels::EXCLUSIVE_TOPOLOGY: self.rack() } },
            "spec": { "replicatedJobs": [{ "name": "w", "replicas": 3, "template": { "spec": {
                "completions": PODS, "parallelism": PODS, "template": { "spec": {
                    "restartPolicy": "Never", "containers": [{ "name": "w", "image": "w" }] } } } } }] },
        });
        let jobsets: Api<JobSet> = Api::namespaced(self.client.clone(), self.namespace);
        Ok(jobsets.create(&PostParams::default(), &serde_json::from_value(jobset)?).await?)
    }

    /// Creates one of its Jobs, as the controller builds it.
    async fn create_job(&self, jobset: &JobSet, job_index: i32) -> Result<()> {
        let (place, strategy) = (JobPlace { group_index: 0, job_index }, jobset.spec.restart_strategy());
        let desired = build::DesiredJob::of(jobset, place, Attempt::default(), strategy, &PriorityClasses::default());
        let job = build::job(jobset, &desired);
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), self.namespace);
        jobs.create(&PostParams::default(), &job).await?;
        Ok(())
    }

    async fn pods_of(&self, job: &str) -> Result<Vec<Pod>> {
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        Ok(self.pods().list(&of_job).await?.items)
    }

    /// Waits until all Pods of a Job have a node; returns the racks that these are in.
    async fn racks_of(&self, job: &str) -> Result<BTreeSet<String>> {
        let pods = wait::until_met(LIMIT, format!("the Pods of {job} on nodes"), async || {
            let pods = self.pods_of(job).await?;
            let bound = pods.iter().filter(|pod| node(pod).is_some()).count();
            let state = format!("{bound} of {} Pods have a node", pods.len());
            Ok(if bound == PODS { Check::Met(pods) } else { Check::Unmet(state) })
        })
        .await?;
        let rack = |pod: &Pod| node(pod).and_then(|node| node.split_once('-')).map(|(rack, _)| rack.to_owned());
        pods.iter().map(|pod| rack(pod).context("a node in no rack")).collect()
    }

    /// Messages of the Job's events of refused Pods, and how often each was seen.
    async fn refused(&self, job: &str) -> Result<BTreeMap<String, i32>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace);
        let of_job = ListParams::default().fields(&format!("involvedObject.name={job},reason=FailedCreate"));
        let events = events.list(&of_job).await?.items;
        Ok(events.into_iter().map(|it| (it.message.unwrap_or_default(), it.count.unwrap_or(1))).collect())
    }
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

#[tokio::test]
async fn third_job_without_free_rack_waits_with_reason() -> Result<()> {
    let racks = Racks::start("racks", &["r1", "r2"], &[]).await?;
    let space = &racks.space;
    let begin = Instant::now();
    let jobset = space.exclusive().await?;
    for index in 0..2 {
        space.create_job(&jobset, index).await?;
    }
    let (first, second) = (space.racks_of("train-w-0").await?, space.racks_of("train-w-1").await?);
    println!("placed after {:?}", begin.elapsed());
    assert_eq!((first.len(), second.len()), (1, 1), "{first:?} {second:?}");
    assert_ne!(first, second);
    for job in ["train-w-0", "train-w-1"] {
        let refused = space.refused(job).await?;
        println!("{job}: refused {} of {} followers: {refused:#?}", refused.values().sum::<i32>(), PODS - 1);
    }

    space.create_job(&jobset, 2).await?;
    let messages = wait::until_met(LIMIT, "the scheduler's words in an event of the Job", async || {
        let refused = space.refused("train-w-2").await?;
        let told = refused.keys().any(|message| message.contains("is pending: 0/4 nodes are available"));
        Ok(if told { Check::Met(refused) } else { Check::Unmet(format!("{refused:?}")) })
    })
    .await?;
    let leaders = space.pods_of("train-w-2").await?;
    assert_eq!(leaders.len(), 1, "no follower without a rack");
    let leader = leaders[0].name_any();
    assert!(messages.keys().any(|message| message.contains(&format!("Pod {leader} is pending"))), "{messages:?}");

    // Room comes, and nothing that was refused keeps the Job away from it.
    space.usable_node("r3-1", "r3").await?;
    assert_eq!(space.racks_of("train-w-2").await?, BTreeSet::from(["r3".to_owned()]));
    racks.replica.stop().await
}

#[tokio::test]
async fn followers_without_wait_are_refused_until_leader_placed() -> Result<()> {
    let racks = Racks::start("no-wait", &["r1"], &["--leader-wait=0s"]).await?;
    let space = &racks.space;
    let begin = Instant::now();
    space.create_job(&space.exclusive().await?, 0).await?;
    assert_eq!(space.racks_of("train-w-0").await?.len(), 1);
    println!("without a wait: placed after {:?}", begin.elapsed());
    let refused = space.refused("train-w-0").await?;
    println!("without a wait: refused {} of {} followers: {refused:#?}", refused.values().sum::<i32>(), PODS - 1);
    racks.replica.stop().await
}
