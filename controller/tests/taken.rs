//! A Job's name that something else has taken: named in an Event, and no obstacle to others.

use anyhow::Result;
use jobset_e2e::wait::{self, Seen};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::fixture::{Fixture, LIMIT, in_place};

#[tokio::test]
async fn a_job_of_somebody_else_is_named_and_left_alone() -> Result<()> {
    let fixture = Fixture::start().await?;
    let jobs: Api<Job> = Api::default_namespaced(fixture.client.clone());
    let mine = json!({
        "metadata": {"name": "train-workers-0"},
        "spec": {"suspend": true, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "mine", "image": "none"}],
        }}},
    });
    let mine = jobs.create(&PostParams::default(), &serde_json::from_value(mine)?).await?;
    fixture.create(in_place("train", 1, 1)).await?;
    fixture.create(in_place("other", 1, 1)).await?;
    fixture.pods("other", 1, "0").await?;

    let events: Api<Event> = Api::default_namespaced(fixture.client.clone());
    wait::until_seen(LIMIT, "an Event that names the Job", || async {
        let all = events.list(&ListParams::default()).await?.items;
        let named = all.iter().find(|event| event.reason.as_deref() == Some("JobNameTaken"));
        let note = named.and_then(|event| event.note.clone()).unwrap_or_default();
        let wanted = "Job default/train-workers-0 exists, controlled by nobody: delete it, or rename the JobSet";
        Ok(if note == wanted { Seen::Yes(()) } else { Seen::NotYet(note) })
    })
    .await?;
    assert_eq!(jobs.get("train-workers-0").await?.metadata.uid, mine.metadata.uid, "it is left alone");

    jobs.delete("train-workers-0", &DeleteParams::background()).await?;
    fixture.pods("train", 1, "0").await?;
    fixture.plane.stop().await
}
