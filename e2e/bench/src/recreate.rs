//! Restarts by recreation of all Pods.

use std::time::Instant;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::group::{Bench, Group};
use super::jobset::{NAMESPACE, first_job};
use super::phases::Phases;
use super::pods::Census;
use super::report::{Report, Restart};
use jobset_harness::progress::progress;

/// Creates a JobSet, and lets one of its Jobs fail again and again.
///
/// # Errors
/// If anything does not happen in time.
pub(super) async fn measure(bench: &Bench<'_>) -> Result<Report> {
    let (group, census) = Group::create(bench).await?;
    let mut restarts = Vec::new();
    for number in 1..=bench.options.restarts {
        let restart = restart(bench, &group, &census);
        let restart = restart.await.with_context(|| format!("restart {number}"))?;
        progress(&format!("recreation {number} of {}: {:.2} s", bench.options.restarts, restart.seconds));
        restarts.push(restart);
    }
    group.report(bench, restarts).await
}

/// One failed Job, and what follows until the JobSet has settled.
async fn restart(bench: &Bench<'_>, group: &Group, census: &Census) -> Result<Restart> {
    let attempt = group.history.status().restarts + 1;
    let before = group.before(bench).await?;
    fail(bench, &first_job(&group.shape).context("the JobSet has no Job")?).await?;
    let start = Instant::now();
    let arrival = census.complete(attempt, bench.case.agents, bench.limit).await?;
    let cpu = before.cpu(&bench.meter)?;

    group.history.settled(bench.limit).await?;
    let detected = group.history.first(before.writes, |status| status.restarts >= attempt);
    let instants = [
        start,
        detected.context("the restart was not seen in the JobSet's status")?,
        arrival.gone.context("no Pod was deleted")?,
        arrival.created,
    ];
    let end = arrival.created.max(instants[2]);
    group.restarted(bench, &before, Phases::recreate(instants), (start, end), cpu).await
}

/// Marks a Job for failure; the Job controller deletes its Pods, and fails it when they have ended.
async fn fail(bench: &Bench<'_>, job: &str) -> Result<()> {
    let jobs: Api<Job> = Api::namespaced(bench.client.clone(), NAMESPACE);
    let condition = json!({
        "type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded", "message": "as the benchmark wants",
        "lastTransitionTime": Timestamp::now().to_string(),
    });
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    jobs.patch_status(job, &PatchParams::default(), &patch).await.with_context(|| format!("failing Job {job}"))?;
    Ok(())
}
