//! A controller on an API server whose CustomResourceDefinition is not that of its build.

use anyhow::Result;
use jobset_api::JobSet;
use jobset_harness::install;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::fixture::{Vacant, in_place};
use crate::jobsets::{group, jobset};

#[tokio::test]
async fn missing_crd_is_named_and_waited_for() -> Result<()> {
    let vacant = Vacant::start().await?;
    install::kubectl(vacant.plane(), &["delete", "crd", "jobsets.jobset.x-k8s.io"]).await?;
    let fixture = vacant.start_controller(&[])?;
    fixture.controller.logged("the CustomResourceDefinition is not installed, waiting for it").await?;
    install::crd(&fixture.plane).await?;
    fixture.create(jobset("train", &[group("w", 1, 1)])).await?;
    fixture.job("train-w-0").await?;
    fixture.plane.stop().await
}

#[tokio::test]
async fn stale_crd_is_named_with_dropped_fields_nothing_is_done() -> Result<()> {
    let vacant = Vacant::start().await?;
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
    let patch =
        format!(r#"[{{"op":"remove","path":"{status}/freeEpoch"}},{{"op":"remove","path":"{status}/jobsReady"}}]"#);
    let patch = ["patch", "crd", "jobsets.jobset.x-k8s.io", "--type=json", "-p", &patch];
    install::kubectl(vacant.plane(), &patch).await?;
    vacant.create(jobset("train", &[group("w", 1, 1)])).await?;
    let mut fixture = vacant.start_controller(&[])?;
    assert_eq!(fixture.controller.ended().await?.code(), Some(1));
    let log = fixture.controller.log()?;
    let named = "jobsets.jobset.x-k8s.io is older than this controller, and the API server would drop status.freeEpoch, \
                 status.jobsReady: apply that of this version";
    assert!(log.contains(named), "{log}");
    assert_eq!(fixture.jobsets().get("train").await?.status, None);
    fixture.plane.stop().await
}

/// After a rollback of the controller alone, the CustomResourceDefinition is that of the later release, and so are statuses.
#[tokio::test]
async fn status_fields_of_later_release_survive_writes() -> Result<()> {
    let vacant = Vacant::start().await?;
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
    let objects = ["", "/replicatedJobsStatus/items/properties", "/restartRequests/items/properties"];
    let ledger = ["/ledger/properties", "/ledger/properties/milliseconds/properties"];
    let fields = objects
        .iter()
        .chain(&ledger)
        .map(|path| json!({"op": "add", "path": format!("{status}{path}/later"), "value": {"type": "integer"}}));
    let fields: Vec<_> = fields.collect();
    let patch = ["patch", "crd", "jobsets.jobset.x-k8s.io", "--type=json", "-p", &json!(fields).to_string()];
    install::kubectl(vacant.plane(), &patch).await?;
    let fixture = vacant.start_controller(&[])?;
    fixture.create(in_place("train", 1, 9)).await?;
    let pod = fixture.pods("train", 1, "0").await?.remove(0);
    fixture.report(&pod, "1").await?;
    let before = fixture.in_epoch("train", (1, 0, 0, 0)).await?;

    let mut counts = serde_json::to_value(&before.replicated_jobs_status)?;
    counts[0]["later"] = json!(7);
    let time = "2026-01-01T00:00:00.000000Z";
    let patch = Patch::Merge(json!({"status": {
        "later": 5,
        "replicatedJobsStatus": counts,
        "restartRequests": [{"id": "a", "outcome": "Deferred", "time": time, "later": 8}],
        "ledger": {"later": 9, "milliseconds": {"later": 10}},
    }}));
    fixture.jobsets().patch_status("train", &PatchParams::default(), &patch).await?;
    fixture.report(&pod, "2").await?;
    fixture.in_epoch("train", (2, 1, 1, 1)).await?;
    let api = Api::<DynamicObject>::namespaced_with(
        fixture.client.clone(),
        &fixture.namespace,
        &ApiResource::erase::<JobSet>(&()),
    );
    let status = &api.get("train").await?.data["status"];
    let objects = ["", "/replicatedJobsStatus/0", "/restartRequests/0", "/ledger", "/ledger/milliseconds"];
    let kept = objects.map(|path| status.pointer(&format!("{path}/later")).and_then(Value::as_i64));
    assert_eq!(kept, [5, 7, 8, 9, 10].map(Some), "{status}");
    fixture.plane.stop().await
}
