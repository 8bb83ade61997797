//! A panic costs one JobSet its reconciliations, and no other JobSet anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use jobset_api::conditions::INTERNAL_ERROR;
use jobset_controller::shell::Health;
use jobset_harness::wait;
use kube::ResourceExt as _;
use serde_json::json;

use crate::expect::uids;
use crate::fixture::{LIMIT, Space, Vacant};
use crate::jobsets::{group, jobset, with};
use crate::program::run_here;

const PANIC: &str = "a panic of the test";

/// Makes the plans of one JobSet panic.
#[derive(Clone, Default)]
struct Panics {
    is_on: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
}

impl Panics {
    /// Observes a loop whose plans of this JobSet panic while it is on.
    fn health(&self, jobset: &'static str) -> Health {
        let Self { is_on, count } = self.clone();
        Health::calling(move |key| {
            if key.name == jobset && is_on.load(Ordering::Relaxed) {
                count.fetch_add(1, Ordering::Relaxed);
                std::panic::resume_unwind(Box::new(PANIC));
            }
        })
    }

    fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_of_jobset_is_reported_and_others_restart() -> Result<()> {
    let (vacant, panics) = (Vacant::start().await?, Panics::default());
    let (stop, ended) = run_here(vacant.plane(), &panics.health("broken"), &[]).await?;
    let space: &Space = &vacant;
    for name in ["broken", "other"] {
        let restarts = json!({"spec": {"failurePolicy": {"maxRestarts": 1}}});
        space.create(with(jobset(name, &[group("w", 1, 1)]), &restarts)).await?;
    }
    let pods = space.pods_of("broken-w-0", 1).await?;
    let first = uids(&space.jobs_of("other", &["other-w-0"]).await?);

    panics.set(true);
    space.edit("broken", json!({"metadata": {"annotations": {"touched": "yes"}}})).await?;
    let condition = space.condition("broken", INTERNAL_ERROR, "True").await?;
    ensure!(condition.reason == "Panicked", "{condition:?}");
    ensure!(condition.message.contains(PANIC), "{condition:?}");
    space.note(INTERNAL_ERROR, PANIC).await?;

    // The other JobSet restarts by recreation, which takes several reconciliations.
    space.fail_job("other-w-0", "BackoffLimitExceeded").await?;
    space.status_once("other", "one restart", |status| status.restarts == 1).await?;
    // The restart is counted before the Job is deleted.
    wait::until(LIMIT, "another Job in place of the one that failed", || async {
        Ok((uids(&space.jobs_of("other", &["other-w-0"]).await?) != first).then_some(()))
    })
    .await?;

    // Events of the JobSet do not cause the panic again.
    space.edit("broken", json!({"metadata": {"labels": {"touched": "yes"}}})).await?;
    space.settle().await?;
    ensure!(panics.count() == 1, "the JobSet was reconciled again");
    ensure!(uids(&space.pods_of("broken-w-0", 1).await?) == uids(&pods), "the Pod was replaced");
    ensure!(!ended.is_finished(), "the controller has ended");

    panics.set(false);
    let mut spec = serde_json::to_value(space.jobsets().get("broken").await?.spec)?;
    spec["replicatedJobs"][0]["replicas"] = json!(2);
    space.edit("broken", json!({"spec": {"replicatedJobs": spec["replicatedJobs"]}})).await?;
    let condition = space.condition("broken", INTERNAL_ERROR, "False").await?;
    ensure!(condition.reason == "Recovered", "{condition:?}");
    let jobs = space.jobs_of("broken", &["broken-w-0", "broken-w-1"]).await?;
    ensure!(jobs.iter().all(|job| job.uid().is_some()));
    ensure!(uids(&space.pods_of("broken-w-0", 1).await?) == uids(&pods), "the Pod was replaced");
    stop.cancel();
    ended.await??;
    vacant.stop().await
}
