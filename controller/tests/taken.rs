//! A Job's name that something else has taken: named in an Event, and no obstacle to others.

use anyhow::Result;
use jobset_api::conditions::CHILD_REFUSED;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::fixture::{Space, in_place};

#[tokio::test]
async fn a_job_of_somebody_else_is_named_and_left_alone() -> Result<()> {
    let space = Space::new("taken").await?;
    let jobs: Api<Job> = space.jobs();
    let mine = json!({
        "metadata": {"name": "train-workers-0"},
        "spec": {"suspend": true, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "mine", "image": "none"}],
        }}},
    });
    let mine = jobs.create(&PostParams::default(), &serde_json::from_value(mine)?).await?;
    space.create(in_place("train", 1, 1)).await?;
    space.create(in_place("other", 1, 1)).await?;
    space.pods("other", 1, "0").await?;

    let note = space.note("JobCreationFailed", "train-workers-0").await?;
    assert_eq!(note, "Job taken/train-workers-0 exists, controlled by nobody: delete it, or rename the JobSet");
    assert_eq!(jobs.get("train-workers-0").await?.uid(), mine.uid(), "it is left alone");
    assert_eq!(space.condition("train", CHILD_REFUSED, "True").await?.message, note);

    jobs.delete("train-workers-0", &DeleteParams::background()).await?;
    space.pods("train", 1, "0").await?;
    space.condition("train", CHILD_REFUSED, "False").await?;
    Ok(())
}
