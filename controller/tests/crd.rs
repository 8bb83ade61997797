//! A controller on an API server whose CustomResourceDefinition is not that of its build.

use anyhow::Result;
use jobset_harness::install;

use crate::fixture::Vacant;
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
