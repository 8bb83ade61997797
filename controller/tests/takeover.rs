//! Takeover from the Go JobSet in the middle of a run: what it has left is gone on with, as its source has it.

use anyhow::Result;
use jobset_api::{JobSet, JobSetStatus};
use jobset_harness::wait;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::fixture::{Fixture, LIMIT, Space, Vacant};
use crate::outcome::{epochs, restarts};
use crate::program::NAMESPACE;
use crate::workload::{recreated, restarting};

/// A key of the Go JobSet.
fn key(name: &str) -> String {
    format!("jobset.sigs.k8s.io/{name}")
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

fn owner(jobset: &JobSet) -> Value {
    json!([{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": jobset.name_any(),
            "uid": jobset.uid(), "controller": true, "blockOwnerDeletion": true}])
}

/// A Job of the only replicatedJob, `w`, as the Go JobSet creates it: it knows no attempts of single Jobs.
fn go_job(jobset: &JobSet, index: usize, attempt: i32) -> Value {
    let name = format!("{}-w-{index}", jobset.name_any());
    let group = &jobset.spec.replicated_jobs[0];
    let replicas = group.replicas().to_string();
    let (index, attempt) = (index.to_string(), attempt.to_string());
    let marks: Value = [
        ("jobset-name", jobset.name_any()),
        ("jobset-uid", jobset.uid().unwrap_or_default()),
        ("replicatedjob-name", "w".to_owned()),
        ("replicatedjob-replicas", replicas.clone()),
        ("global-replicas", replicas.clone()),
        ("group-name", "default".to_owned()),
        ("group-replicas", replicas),
        ("job-index", index.clone()),
        ("job-global-index", index.clone()),
        ("job-group-index", index),
        ("job-key", jobset_api::names::job_key("default", &name)),
        ("restart-attempt", attempt),
    ]
    .map(|(name, value)| (key(name), json!(value)))
    .into_iter()
    .collect();
    let mut spec = json!(group.template.spec);
    spec["suspend"] = json!(false);
    spec["template"]["metadata"] = json!({"labels": marks, "annotations": marks});
    spec["template"]["spec"]["subdomain"] = json!(jobset.name_any());
    let metadata = json!({"name": name, "labels": marks, "annotations": marks, "ownerReferences": owner(jobset)});
    json!({"metadata": metadata, "spec": spec})
}

/// A JobSet that the Go controller has been running, with its Service, and a Job of each of these attempts.
async fn go_jobset(space: &Space, mut jobset: Value, attempts: &[i32], status: &Value) -> Result<()> {
    if let Some(annotations) = jobset["metadata"]["annotations"].as_object_mut() {
        annotations.remove(&key("restart-budget"));
    }
    let jobset = space.create(jobset).await?;
    let name = jobset.name_any();
    let services: Api<Service> = Api::default_namespaced(space.client.clone());
    let service = json!({
        "metadata": {"name": name, "ownerReferences": owner(&jobset)},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {key("jobset-name"): name}},
    });
    create(&services, service).await?;
    for (index, attempt) in attempts.iter().enumerate() {
        create(&space.jobs(), go_job(&jobset, index, *attempt)).await?;
    }
    let patch = Patch::Merge(json!({"status": status}));
    space.jobsets().patch_status(&name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The counts of the Go JobSet: it omits no zero.
fn counts(active: usize, ready: usize) -> Value {
    json!([{"name": "w", "active": active, "ready": ready, "failed": 0, "succeeded": 0, "suspended": 0}])
}

/// The Go controller was killed a minute ago: the Lease, which is installed, has not been released.
async fn go_lease(space: &Space) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(space.client.clone(), NAMESPACE);
    let lease = json!({
        "spec": {
            "holderIdentity": "jobset-controller-manager-7c8f6d9b5-x2vqz_0b9ae1a5-6f0f-4a8e-9d6c-2f4c1d8a7e35",
            "leaseDurationSeconds": 1,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T12:00:00.000000Z",
            "leaseTransitions": 3,
        },
    });
    leases.patch("6d4f6a47.jobset.x-k8s.io", &PatchParams::default(), &Patch::Merge(lease)).await?;
    Ok(())
}

/// Waits until the controller has carried out a pass over the JobSet: it gives the Service the label that the Go JobSet
/// does not.
async fn taken_over(fixture: &Fixture, jobset: &str) -> Result<()> {
    let services: Api<Service> = Api::default_namespaced(fixture.client.clone());
    wait::until(LIMIT, format!("the Service of {jobset} to be labelled"), || async {
        Ok(services.get(jobset).await?.labels().contains_key(&key("jobset-name")).then_some(()))
    })
    .await
}

/// What tells whether a Job or Pod was touched.
fn identities<K: ResourceExt>(objects: &[K]) -> Vec<(Option<String>, Option<i64>, bool)> {
    let identity = |object: &K| {
        let metadata = object.meta();
        (metadata.uid.clone(), metadata.generation, metadata.deletion_timestamp.is_some())
    };
    objects.iter().map(identity).collect()
}

async fn jobs(space: &Space, names: [&str; 2]) -> Result<[Job; 2]> {
    Ok([space.job(names[0]).await?, space.job(names[1]).await?])
}

#[tokio::test]
async fn running_jobset_of_go_controller_keeps_counters() -> Result<()> {
    let vacant = Vacant::start().await?;
    go_lease(&vacant).await?;
    let policy = json!({"maxRestarts": 3});
    let resumed = json!({"type": "Suspended", "status": "False", "reason": "ResumeJobs",
                         "message": "jobset is resumed", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"restarts": 2, "restartsCountTowardsMax": 1, "conditions": [resumed],
                        "replicatedJobsStatus": counts(2, 2)});
    go_jobset(&vacant, recreated("train", &policy, &[("w", 2)]), &[2, 2], &status).await?;
    // Of this one the Go controller had counted a restart, and deleted and created one Job of two.
    let status = json!({"restarts": 1, "restartsCountTowardsMax": 1, "replicatedJobsStatus": counts(1, 0)});
    go_jobset(&vacant, recreated("half", &policy, &[("w", 2)]), &[0, 1], &status).await?;
    let pods = vacant.pods("train", 2, "2").await?;
    for pod in &pods {
        vacant.run(pod).await?;
    }
    let before = (jobs(&vacant, ["train-w-0", "train-w-1"]).await?, jobs(&vacant, ["half-w-0", "half-w-1"]).await?);

    let fixture = vacant.start_controller(&[])?;
    fixture.controller.logged("leading").await?;
    taken_over(&fixture, "train").await?;
    taken_over(&fixture, "half").await?;
    let after = jobs(&fixture, ["train-w-0", "train-w-1"]).await?;
    assert_eq!(identities(&after), identities(&before.0), "no Job is touched");
    assert_eq!(identities(&fixture.pods("train", 2, "2").await?), identities(&pods), "no Pod is restarted");
    let ready = |status: &JobSetStatus| status.replicated_job("w").is_some_and(|it| (it.ready, it.active) == (2, 2));
    let status = fixture.status_once("train", "with all Jobs ready", ready).await?;
    assert_eq!(restarts(&status), (2, 1, 2), "what the Go JobSet had counted is gone on with");

    // What was left of the restart is carried out, and not counted again.
    let again = fixture.job_after(&before.1[0]).await?;
    assert_eq!(again.labels()[&key("restart-attempt")], "1");
    assert_eq!(fixture.job("half-w-1").await?.uid(), before.1[1].uid());
    assert_eq!(restarts(&fixture.status("half").await?), (1, 1, 1));

    // The next failure restarts with the next attempt.
    fixture.fail_job("train-w-1", "BackoffLimitExceeded").await?;
    fixture.restarted("train", (3, 2, 3)).await?;
    let pods = fixture.pods("train", 2, "3").await?;
    assert!(pods.iter().all(|pod| pod.labels()[&key("job-restart-attempt")] == "0"));
    fixture.plane.stop().await
}

/// Current and previous attempt, and what counts: what the Go manager and its agents read.
fn attempts(status: &JobSetStatus) -> (Option<i32>, Option<i32>, i32, i32) {
    let (current, previous) = (status.current_in_place_restart_attempt, status.previous_in_place_restart_attempt);
    (current, previous, status.restarts, status.restarts_count_towards_max)
}

impl Space {
    /// The agent of the Go JobSet reports this attempt.
    async fn attempt(&self, pod: &Pod, attempt: i32) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {key("in-place-restart-attempt"): attempt.to_string()}}});
        self.all_pods().patch_metadata(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn in_attempt(&self, jobset: &str, wanted: (Option<i32>, Option<i32>, i32, i32)) -> Result<JobSetStatus> {
        self.status_once(jobset, &format!("in attempts {wanted:?}"), |status| attempts(status) == wanted).await
    }
}

/// An in-place JobSet in the words of Kubernetes, which are the only ones that the Go JobSet knows.
fn go_in_place(name: &str) -> Result<Value> {
    let jobset = restarting(name, 2, 3).to_string().replace("RestartPod", "RestartAllContainers");
    let mut jobset: Value = serde_json::from_str(&jobset)?;
    jobset["spec"]["replicatedJobs"][0]["name"] = json!("w");
    Ok(jobset)
}

#[tokio::test]
async fn go_agents_of_taken_over_group_restart_in_place() -> Result<()> {
    let vacant = Vacant::start().await?;
    // One recreation and one restart in place, both of which count.
    let status = json!({"restarts": 1, "restartsCountTowardsMax": 1,
                        "previousInPlaceRestartAttempt": 1, "currentInPlaceRestartAttempt": 2,
                        "replicatedJobsStatus": counts(1, 1)});
    go_jobset(&vacant, go_in_place("train")?, &[1], &status).await?;
    let pods = vacant.pods("train", 2, "1").await?;
    for pod in &pods {
        vacant.attempt(pod, 2).await?;
        vacant.run(pod).await?;
    }
    let job = vacant.job("train-w-0").await?;

    let fixture = vacant.start_controller(&[])?;
    taken_over(&fixture, "train").await?;
    let status = fixture.status_once("train", "with epochs", |status| status.synced_epoch > 0).await?;
    assert_eq!((epochs(&status), attempts(&status)), ((3, 2, 1, 2), (Some(2), Some(1), 1, 1)));
    assert_eq!(fixture.job("train-w-0").await?.uid(), job.uid());
    let now: Vec<Pod> = fixture.pods("train", 2, "1").await?;
    assert_eq!(identities(&now), identities(&pods), "no Pod is restarted");

    // A worker exits: its agent is told to restart the other, and the barrier is lifted by Go's words.
    fixture.reset(&pods[0]).await?;
    fixture.attempt(&pods[0], 3).await?;
    let status = fixture.in_attempt("train", (Some(2), Some(2), 1, 1)).await?;
    assert_eq!(epochs(&status), (3, 3, 1, 3));
    fixture.reset(&pods[1]).await?;
    fixture.attempt(&pods[1], 3).await?;
    let status = fixture.in_attempt("train", (Some(3), Some(2), 1, 1)).await?;
    assert_eq!(epochs(&status), (4, 3, 1, 3));
    for pod in &pods {
        fixture.run(pod).await?;
    }

    // The next restart would be the fourth, of three: by Go's reckoning and by ours.
    fixture.reset(&pods[0]).await?;
    fixture.attempt(&pods[0], 4).await?;
    let (end, _) = fixture.ended("train").await?;
    assert_eq!(end.reason, "ReachedMaxRestarts");
    fixture.plane.stop().await
}

#[tokio::test]
async fn failed_job_after_takeover_recreates_in_go_words() -> Result<()> {
    let space = Space::new("go-agents").await?;
    space.create(go_in_place("train")?).await?;
    let pods = space.pods("train", 2, "0").await?;
    for pod in &pods {
        space.attempt(pod, 0).await?;
    }
    space.in_attempt("train", (Some(0), None, 0, 0)).await?;
    for pod in &pods {
        space.run(pod).await?;
    }
    space.fail_job("train-w-0", "BackoffLimitExceeded").await?;
    space.in_attempt("train", (Some(0), Some(0), 1, 1)).await?;
    for pod in &space.pods("train", 2, "1").await? {
        space.attempt(pod, 1).await?;
    }
    let status = space.in_attempt("train", (Some(1), Some(0), 1, 1)).await?;
    assert_eq!((restarts(&status), status.synced_epoch), ((1, 1, 1), 2));
    Ok(())
}
