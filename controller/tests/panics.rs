//! A panic costs one JobSet its reconciliations, and no other JobSet anything.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use jobset_api::conditions::INTERNAL_ERROR;
use jobset_harness::{paths, programs, wait};
use kube::ResourceExt as _;
use serde_json::json;

use crate::expect::uids;
use crate::fixture::{Fixture, LIMIT};
use crate::jobsets::{group, jobset, with};
use crate::program::PANICS;

const PANICKED: &str = "jobset_internal_errors_total";

#[test]
#[cfg_attr(not(debug_assertions), ignore = "the failpoint is in development builds")]
fn failpoint_is_in_development_builds_alone() -> Result<()> {
    ensure!(
        programs::has_failpoint(Path::new(env!("CARGO_BIN_EXE_jobset-controller")))?,
        "the failpoint has another name"
    );
    // The harness looks for it in each shipped build that it makes. Others, such as that of deploy/Dockerfile, have the
    // same profile, which has no debug assertions unless one of these files switches them on.
    for file in ["Cargo.toml", ".cargo/config.toml"] {
        let text = std::fs::read_to_string(paths::workspace().join(file)).context(file)?;
        ensure!(!text.contains("debug-assertions"), "{file} changes which builds have debug assertions");
    }
    Ok(())
}

#[tokio::test]
#[cfg_attr(not(debug_assertions), ignore = "the failpoint is in development builds")]
async fn panic_of_one_jobset_is_reported_and_others_restart_until_its_specification_changes() -> Result<()> {
    let fixture = Fixture::start().await?;
    for name in ["broken", "other"] {
        let restarts = json!({"spec": {"failurePolicy": {"maxRestarts": 1}}});
        fixture.create(with(jobset(name, &[group("w", 1, 1)]), &restarts)).await?;
    }
    let pods = fixture.pods_of("broken-w-0", 1).await?;
    let first = uids(&fixture.jobs_of("other", &["other-w-0"]).await?);

    fixture.edit("broken", json!({"metadata": {"annotations": {(PANICS): ""}}})).await?;
    let condition = fixture.condition("broken", INTERNAL_ERROR, "True").await?;
    ensure!(condition.reason == "Panicked", "{condition:?}");
    ensure!(condition.message.contains("the failpoint of tests was reached"), "{condition:?}");
    fixture.note(INTERNAL_ERROR, "the failpoint of tests was reached").await?;
    fixture.controller.has_metric(PANICKED, Some(1.0)).await?;

    // The other JobSet restarts by recreation, which takes several reconciliations.
    fixture.fail_job("other-w-0", "BackoffLimitExceeded").await?;
    fixture.status_once("other", "one restart", |status| status.restarts == 1).await?;
    // The restart is counted before the Job is deleted.
    wait::until(LIMIT, "another Job in place of the one that failed", || async {
        Ok((uids(&fixture.jobs_of("other", &["other-w-0"]).await?) != first).then_some(()))
    })
    .await?;

    // Events of the JobSet do not cause the panic again.
    fixture.edit("broken", json!({"metadata": {"labels": {"touched": "yes"}}})).await?;
    fixture.settle().await?;
    ensure!(fixture.controller.metric(PANICKED).await? == Some(1.0), "the JobSet was reconciled again");
    ensure!(uids(&fixture.pods_of("broken-w-0", 1).await?) == uids(&pods), "the Pod was replaced");
    let healthy = fixture.controller.get("health checks", "/healthz").await?;
    ensure!(healthy.starts_with("HTTP/1.0 200"), "{healthy}");

    let mut spec = serde_json::to_value(fixture.jobsets().get("broken").await?.spec)?;
    spec["replicatedJobs"][0]["replicas"] = json!(2);
    let repaired =
        json!({"metadata": {"annotations": {(PANICS): null}}, "spec": {"replicatedJobs": spec["replicatedJobs"]}});
    fixture.edit("broken", repaired).await?;
    let condition = fixture.condition("broken", INTERNAL_ERROR, "False").await?;
    ensure!(condition.reason == "Recovered", "{condition:?}");
    let jobs = fixture.jobs_of("broken", &["broken-w-0", "broken-w-1"]).await?;
    ensure!(jobs.iter().all(|job| job.uid().is_some()));
    ensure!(uids(&fixture.pods_of("broken-w-0", 1).await?) == uids(&pods), "the Pod was replaced");
    ensure!(fixture.controller.metric(PANICKED).await? == Some(1.0));
    fixture.plane.stop().await
}
