//! API servers restart, refuse what is too much, and end watches, as they do in every cluster, without a line of level ERROR.

use anyhow::Result;
use jobset_api::JobSet;
use jobset_harness::wait;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::fixture::{Fixture, LIMIT, in_place, next};
use crate::outcome::restarts;
use crate::workload::recreated;

/// As the leader it outlives an API server that is away for longer than this machine needs.
const PATIENT: [&str; 3] =
    ["--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=50s", "--leader-elect-retry-period=500ms"];

fn epochs(jobset: &JobSet) -> (i32, i32, i32) {
    let status = jobset.status.clone().unwrap_or_default();
    (status.synced_epoch, status.deprecated_epoch, status.group_restarts)
}

#[tokio::test]
async fn api_server_restart_during_restart_in_place_costs_no_count() -> Result<()> {
    let fixture = Fixture::start_with(&PATIENT).await?;
    fixture.create(in_place("train", 2, 9)).await?;
    let pods = fixture.pods("train", 2, "0").await?;
    let mut history = fixture.history("train").await?;
    for pod in &pods {
        fixture.report(pod, "1").await?;
    }
    while epochs(&next(&mut history).await?) != (1, 0, 0) {}
    fixture.report(&pods[0], "2").await?;
    while epochs(&next(&mut history).await?) != (1, 1, 1) {}

    fixture.plane.stop_api_server().await?;
    fixture.controller.logged("requests fail, trying again").await?;
    fixture.plane.start_api_server().await?;
    fixture.report(&pods[1], "2").await?;
    let mut history = fixture.history("train").await?;
    while epochs(&next(&mut history).await?) != (2, 1, 1) {}

    let restarts =
        r#"jobset_restarts_total{action="restart_jobset",counted="true",namespace="default",strategy="in_place"}"#;
    assert_eq!(fixture.controller.metric(restarts).await?, Some(1.0));
    fixture.controller.logged("requests succeed again").await?;
    let log = fixture.controller.log()?;
    assert!(!log.contains("ERROR"), "{log}");
    let warnings = log.lines().filter(|line| line.contains("WARN"));
    let (failures, others): (Vec<_>, Vec<_>) = warnings.partition(|line| line.contains("requests fail"));
    // One for each of nine watches, for the Lease, and for what was to be written; one says that the group restarts.
    assert!(failures.len() <= 11 && others.len() == 1, "{log}");
    fixture.plane.stop().await
}

#[tokio::test]
async fn api_server_restart_during_recreation_costs_no_count() -> Result<()> {
    let fixture = Fixture::start_with(&PATIENT).await?;
    fixture.create(recreated("train", &json!({"maxRestarts": 9}), &[("w", 2)])).await?;
    let pods = fixture.pods("train", 2, "0").await?;
    // It takes its time to go, and its Job with it.
    fixture.bind(&pods[0], json!({"metadata": {"name": "slow"}})).await?;
    let other = fixture.job("train-w-1").await?;
    fixture.fail_job("train-w-1", "BackoffLimitExceeded").await?;
    fixture.job_after(&other).await?;

    fixture.plane.stop_api_server().await?;
    fixture.controller.logged("requests fail, trying again").await?;
    fixture.plane.start_api_server().await?;
    fixture.release(&pods[0]).await?;
    fixture.pods("train", 2, "1").await?;
    assert_eq!(restarts(&fixture.status("train").await?), (1, 1, 1));
    let counted =
        r#"jobset_restarts_total{action="restart_jobset",counted="true",namespace="default",strategy="recreate"}"#;
    assert_eq!(fixture.controller.metric(counted).await?, Some(1.0));
    assert!(!fixture.controller.log()?.contains("ERROR"));
    fixture.plane.stop().await
}

#[tokio::test]
async fn throttled_request_is_retried_after_time_of_api_server() -> Result<()> {
    let fixture = Fixture::start().await?;
    // One Job after the other: what comes in between is answered with 429 and Retry-After.
    let level = json!({
        "metadata": {"name": "one"},
        "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 0, "lendablePercent": 0,
                 "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}},
    });
    let schema = json!({
        "metadata": {"name": "jobs"},
        "spec": {
            "matchingPrecedence": 2,
            "priorityLevelConfiguration": {"name": "one"},
            "rules": [{
                "subjects": [{"kind": "Group", "group": {"name": "system:serviceaccounts:jobset-system"}}],
                "resourceRules": [{"verbs": ["create"], "apiGroups": ["batch"], "resources": ["jobs"], "namespaces": ["*"]}],
            }],
        },
    });
    let levels: Api<PriorityLevelConfiguration> = Api::all(fixture.client.clone());
    let schemas: Api<FlowSchema> = Api::all(fixture.client.clone());
    levels.create(&PostParams::default(), &serde_json::from_value(level)?).await?;
    schemas.create(&PostParams::default(), &serde_json::from_value(schema)?).await?;
    wait::until(LIMIT, "the API server to know the rule", || async {
        let status = schemas.get("jobs").await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        Ok((!conditions.is_empty()).then_some(()))
    })
    .await?;
    let mut jobset = in_place("train", 1, 1);
    jobset["spec"]["replicatedJobs"][0]["replicas"] = json!(16);
    fixture.create(jobset).await?;
    fixture.pods("train", 16, "0").await?;
    let refused = r#"jobset_api_requests_total{code="429",resource="jobs",verb="create"}"#;
    assert!(
        fixture.controller.metric(refused).await? > Some(0.0),
        "{}",
        fixture.controller.get("metrics", "/metrics").await?
    );
    let log = fixture.controller.log()?;
    assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
    fixture.plane.stop().await
}
