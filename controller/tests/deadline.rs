//! `activeDeadlineSeconds` (KEP-1186): the controller wakes up by itself. Who fails by it is in `cases/plan/deadline`.

use anyhow::{Context, Result};
use jobset_api::conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::jobsets::{group, jobset, with};

const ON: &str = "--feature-gates=JobSetActiveDeadlineSeconds=true";

fn within(jobset: Value, seconds: i64) -> Value {
    with(jobset, &json!({"spec": {"activeDeadlineSeconds": seconds}}))
}

#[tokio::test]
async fn deadline_passes_and_the_jobset_fails_for_good() -> Result<()> {
    let fixture = Fixture::start_with(&[ON]).await?;
    // The wake-up is the controller's own: nothing else happens to the JobSet.
    fixture.create(within(jobset("train", &[group("w", 2, 1)]), 2)).await?;
    let (end, status) = fixture.ended("train").await?;
    assert_eq!((&*end.type_, &*end.reason), (conditions::FAILED, conditions::DEADLINE_EXCEEDED));
    assert_eq!(end.message, "JobSet was active for longer than the specified deadline of 2s");
    let Time(start) = status.start_time.context("no start time")?;
    assert!(end.last_transition_time.0.duration_since(start).as_secs() >= 2, "{start} {:?}", end.last_transition_time);
    for job in ["train-w-0", "train-w-1"] {
        fixture.job_gone(job).await?;
    }
    fixture.note("DeadlineExceeded", "deadline of 2s").await?;
    let series = r#"jobset_active_deadline_exceeded_total{jobset_name="train",namespace="default"}"#;
    fixture.controller.has_metric(series, Some(1.0)).await?;
    fixture.controller.has_metric(r#"jobset_failed_total{jobset_name="train",namespace="default"}"#, Some(1.0)).await?;
    fixture.plane.stop().await
}
