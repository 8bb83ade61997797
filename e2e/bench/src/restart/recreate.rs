//! Restarts by recreation of all Pods.

use std::time::Instant;

use anyhow::{Context, Result};
use jobset_harness::progress::progress;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::group::{Bench, MeasuredGroup};
use super::jobset::{NAMESPACE, first_job};
use super::pods::Census;
use super::report::{CaseFigures, Restart};
use crate::phases::Phases;

/// The phases of a restart, in seconds.
///
/// - `detect`: from the failure, visible at the API server, to the raised `status.restarts`.
/// - `delete`: to the end of the last Pod of the previous attempt.
/// - `create`: to the creation of the last Pod of the new attempt.
const PHASES: [&str; 3] = ["detect", "delete", "create"];

/// Creates a JobSet, and lets one of its Jobs fail again and again.
pub(super) async fn measure(bench: &Bench<'_>) -> Result<CaseFigures> {
    let (group, census) = MeasuredGroup::create(bench).await?;
    let mut restarts = Vec::new();
    for number in 1..=bench.restarts {
        let restart = restart(bench, &group, &census).await.with_context(|| format!("restart {number}"))?;
        progress(&format!("recreation {number} of {}: {:.2} s", bench.restarts, restart.seconds));
        restarts.push(restart);
    }
    MeasuredGroup::figures(bench, restarts)
}

/// One failed Job, and what follows until the JobSet has settled.
async fn restart(bench: &Bench<'_>, group: &MeasuredGroup, census: &Census) -> Result<Restart> {
    let attempt = group.history.status().restarts + 1;
    let before = group.before(bench).await?;
    fail(bench, &first_job(&group.shape).context("the JobSet has no Job")?).await?;
    let start = Instant::now();
    let (created, deleted) = census.complete(attempt, bench.case.agents, bench.limit).await?;
    let cpu = before.cpu(bench)?;

    group.history.settled(bench.limit).await?;
    let detected = group.history.first(before.writes, |status| status.restarts >= attempt);
    let detected = detected.context("the restart is not in the JobSet's status")?;
    let deleted = deleted.context("no Pod was deleted")?;
    let phases = Phases::new(PHASES, start, [detected, deleted, created]);
    group.restarted(bench, &before, phases, (start, created.max(deleted)), cpu).await
}

/// Marks a Job for failure; the Job controller deletes its Pods, and fails it when they have ended.
async fn fail(bench: &Bench<'_>, job: &str) -> Result<()> {
    let jobs: Api<Job> = Api::namespaced(bench.client.clone(), NAMESPACE);
    let condition = json!({
        "type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded", "message": "failed by the benchmark",
        "lastTransitionTime": Timestamp::now().to_string(),
    });
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    jobs.patch_status(job, &PatchParams::default(), &patch).await.with_context(|| format!("cannot fail Job {job}"))?;
    Ok(())
}
