//! What the API server does on its own while no admission service answers: everything but new JobSets and changes of a
//! specification.

use anyhow::{Context as _, Result};
use jobset_api::JobSet;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::api_server::{good, refusal};
use crate::cluster::Plane;

#[tokio::test]
async fn without_the_service_jobsets_can_be_labelled_finished_and_deleted() -> Result<()> {
    let plane = Plane::start().await?;
    for (name, jobset) in [("small", good("small")), ("large", large("large"))] {
        plane.create(&jobset).await.with_context(|| name.to_owned())?;
    }
    // Nobody listens there.
    let nowhere = std::net::TcpListener::bind((plane.plane.ready().host_address, 0))?.local_addr()?;
    plane.register(nowhere).await?;
    plane.until_refused_without_service().await?;
    let jobsets = plane.jobsets();
    for name in ["small", "large"] {
        merge(&jobsets, name, json!({ "metadata": { "labels": { "team": "a" }, "annotations": { "note": "b" } } }))
            .await?;
        merge(&jobsets, name, json!({ "metadata": { "finalizers": ["example.com/wait"] } })).await?;
        let mut status = jobsets.get(name).await?;
        status.status.get_or_insert_default().restarts = 1;
        jobsets.replace_status(name, &PostParams::default(), &status).await?;
        let suspended = merge(&jobsets, name, json!({ "spec": { "suspend": true } })).await;
        let refusal = refusal(suspended);
        assert!(refusal.message.contains("failed calling webhook"), "{refusal:?}");

        jobsets.delete(name, &DeleteParams::default()).await?;
        let deleted = merge(&jobsets, name, json!({ "metadata": { "labels": { "team": "b" } } })).await?;
        assert!(deleted.metadata.deletion_timestamp.is_some());
        merge(&jobsets, name, json!({ "metadata": { "finalizers": null } })).await?;
        assert!(jobsets.get_opt(name).await?.is_none(), "{name} is gone");
    }
    plane.plane.stop().await
}

impl Plane {
    /// Waits until the API server has seen the registration of a service that does not answer.
    async fn until_refused_without_service(&self) -> Result<()> {
        jobset_harness::wait::until(crate::cluster::LIMIT, "the registration to be seen", async || {
            let answer = self.dry_run(&good("probe")).await;
            Ok(answer.is_err_and(|error| error.to_string().contains("failed calling webhook")).then_some(()))
        })
        .await
    }
}

async fn merge(jobsets: &Api<JobSet>, name: &str, change: Value) -> kube::Result<JobSet> {
    jobsets.patch(name, &PatchParams::default(), &Patch::Merge(change)).await
}

/// A JobSet of half a megabyte.
fn large(name: &str) -> Value {
    let mut jobset = good(name);
    let container = jobset.pointer_mut("/spec/replicatedJobs/0/template/spec/template/spec/containers/0").unwrap();
    let variable = |index: usize| json!({ "name": format!("VARIABLE_{index}"), "value": "x".repeat(100) });
    container["env"] = (0..4000).map(variable).collect();
    jobset
}
