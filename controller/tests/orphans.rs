//! Children with a foreign owner or broken labels: named where they are in the way, and left alone.

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::fixture::Space;
use crate::jobsets::{group, jobset};

const ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";
const INDEX: &str = "jobset.sigs.k8s.io/job-index";

impl Space {
    async fn relabel(&self, job: &str, labels: Value) -> Result<Job> {
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        Ok(self.jobs().patch(job, &PatchParams::default(), &patch).await?)
    }

    /// Asserts that the Job is still there, and nobody has asked it to go.
    async fn is_left_alone(&self, job: &Job) -> Result<()> {
        let found = self.jobs().get(&job.name_any()).await?;
        assert_eq!((found.uid(), found.metadata.deletion_timestamp), (job.uid(), None), "{}", job.name_any());
        assert_eq!(found.metadata.generation, job.metadata.generation, "{}", job.name_any());
        Ok(())
    }
}

#[tokio::test]
async fn own_job_with_broken_labels_is_named_until_mended() -> Result<()> {
    let space = Space::new("broken-labels").await?;
    space.create(jobset("train", &[group("w", 4, 1)])).await?;
    space.pods("train", 4, "0").await?;
    space.counts("train", "w", [4, 0, 0, 0, 0]).await?;
    let broken = [
        space.relabel("train-w-0", json!({ATTEMPT: null})).await?,
        space.relabel("train-w-1", json!({ATTEMPT: "first"})).await?,
        space.relabel("train-w-2", json!({INDEX: "7th"})).await?,
    ];
    for (job, label) in broken.iter().zip([ATTEMPT, ATTEMPT, INDEX]) {
        let note = space.note("JobMislabelled", &job.name_any()).await?;
        assert!(note.contains("is left alone") && note.contains(label), "{note}");
    }
    // A Job that nobody can place counts for nothing, whatever becomes of it.
    space.counts("train", "w", [1, 0, 0, 0, 0]).await?;
    space.settle().await?;
    for job in &broken {
        space.is_left_alone(job).await?;
    }
    space.relabel("train-w-0", json!({ATTEMPT: "0"})).await?;
    space.relabel("train-w-1", json!({ATTEMPT: "0"})).await?;
    space.relabel("train-w-2", json!({INDEX: "2"})).await?;
    let status = space.counts("train", "w", [4, 0, 0, 0, 0]).await?;
    assert_eq!((status.restarts, &*status.terminal_state), (0, ""));
    for job in &broken {
        space.is_left_alone(job).await?;
    }
    Ok(())
}

#[tokio::test]
async fn foreign_job_with_our_labels_is_left_alone() -> Result<()> {
    let space = Space::new("foreign-owner").await?;
    let owner = space.create(jobset("owner", &[group("w", 1, 1)])).await?;
    space.create(jobset("train", &[group("w", 1, 1)])).await?;
    let own = space.jobs_of("train", &["train-w-0"]).await?.pop().context("no Job")?;
    // Two copies of its Job under other names, one of another JobSet and one of nobody.
    let mut copies = Vec::new();
    for (index, owners) in [json!([{
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "owner", "uid": owner.uid(), "controller": true,
    }]), json!([])].into_iter().enumerate() {
        let mut labels = json!(own.labels());
        labels[INDEX] = json!((index + 1).to_string());
        let copy = json!({
            "metadata": {"name": format!("copy-{index}"), "labels": labels, "ownerReferences": owners},
            "spec": group("w", 1, 1)["template"]["spec"],
        });
        copies.push(space.jobs().create(&PostParams::default(), &serde_json::from_value(copy)?).await?);
    }
    for copy in &copies {
        space.pods_of(&copy.name_any(), 1).await?;
    }
    let orphan = json!({
        "metadata": {"name": "orphan", "labels": {"jobset.sigs.k8s.io/jobset-name": "train"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    });
    space.all_pods().create(&PostParams::default(), &serde_json::from_value(orphan)?).await?;
    space.note("NotControlled", "are not its own: Job copy-0, Job copy-1, Pod orphan").await?;
    // One of them fails: the JobSet does not.
    space.fail_job("copy-0", "BackoffLimitExceeded").await?;
    space.settle().await?;
    space.counts("train", "w", [1, 0, 0, 0, 0]).await?;
    space.complete_job("train-w-0", 1).await?;
    space.condition("train", "Completed", "True").await?;
    space.settle().await?;
    space.is_left_alone(&copies[1]).await?;
    assert!(space.jobs().get_opt("copy-0").await?.is_some());
    assert!(space.all_pods().get("orphan").await?.metadata.deletion_timestamp.is_none());
    Ok(())
}
