//! Of several controllers, one leads.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jobset_api::JobSet;
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use rustix::process::Signal;
use serde_json::json;

use crate::fixture::{Fixture, LIMIT, Space, in_place, next};
use crate::outcome::{self, restarts};
use crate::program::{NAMESPACE, Program};
use crate::workload::recreated;

/// A leader that is silent is replaced in seconds.
const IMPATIENT: [&str; 3] =
    ["--leader-elect-lease-duration=5s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=500ms"];
/// A leader that is silent is not replaced while a test waits.
const PATIENT: [&str; 3] =
    ["--leader-elect-lease-duration=10m", "--leader-elect-renew-deadline=5m", "--leader-elect-retry-period=1s"];

/// Two controllers, the first of which leads.
struct Pair {
    fixture: Fixture,
    standby: Program,
}

impl Pair {
    async fn start(arguments: &[&str]) -> Result<Self> {
        let fixture = Fixture::start_with(arguments).await?;
        fixture.controller.logged("leading").await?;
        let standby = Program::start(&fixture.plane, "standby", arguments)?;
        standby.logged("standing by").await?;
        Ok(Self { fixture, standby })
    }
}

pub(crate) async fn lease(space: &Space) -> Result<LeaseSpec> {
    let leases: Api<Lease> = Api::namespaced(space.client.clone(), NAMESPACE);
    leases.get("6d4f6a47.jobset.x-k8s.io").await?.spec.context("an empty Lease")
}

/// The Lease, once it has changed hands.
async fn changed_hands(fixture: &Fixture, before: &LeaseSpec) -> Result<LeaseSpec> {
    wait::until_met(LIMIT, "the Lease to change hands", || async {
        let lease = lease(fixture).await?;
        let holder = lease.holder_identity.clone().unwrap_or_default();
        let changed = !holder.is_empty() && lease.holder_identity != before.holder_identity;
        Ok(if changed { Check::Met(lease) } else { Check::Unmet(holder) })
    })
    .await
}

#[tokio::test]
async fn standby_writes_nothing_and_leads_after_lease_expires() -> Result<()> {
    let Pair { fixture, standby } = Pair::start(&IMPATIENT).await?;
    fixture.create(in_place("first", 1, 1)).await?;
    fixture.pods("first", 1, "0").await?;
    wait::until(LIMIT, "the standby to be ready", || async {
        Ok(standby.get("health checks", "/readyz").await?.starts_with("HTTP/1.0 200").then_some(()))
    })
    .await?;
    assert_eq!(standby.metric("jobset_leader").await?, Some(0.0));
    assert_eq!(fixture.controller.metric("jobset_leader").await?, Some(1.0));
    let metrics = standby.get("metrics", "/metrics").await?;
    let writes = ["create", "update", "patch", "delete"].map(|verb| format!("verb=\"{verb}\""));
    let requests = metrics.lines().filter(|line| line.starts_with("jobset_api_requests_total"));
    assert!(requests.clone().count() > 0, "{metrics}");
    let written: Vec<&str> = requests.filter(|line| writes.iter().any(|verb| line.contains(verb))).collect();
    assert!(written.is_empty(), "{written:?}");

    let before = lease(&fixture).await?;
    assert_eq!((before.lease_duration_seconds, before.lease_transitions), (Some(5), Some(0)));
    fixture.controller.signal(Signal::KILL)?;
    let killed = Instant::now();
    fixture.create(in_place("second", 1, 1)).await?;
    let after = changed_hands(&fixture, &before).await?;
    // The last renewal is at most a period older than the kill.
    assert!(killed.elapsed() > Duration::from_secs(4), "{:?}", killed.elapsed());
    assert_eq!(after.lease_transitions, Some(1));
    fixture.pods("second", 1, "0").await?;
    standby.has_metric("jobset_leader", Some(1.0)).await?;
    fixture.plane.stop().await
}

#[tokio::test]
async fn stopping_leader_hands_over_at_once() -> Result<()> {
    let Pair { mut fixture, standby } = Pair::start(&PATIENT).await?;
    let before = lease(&fixture).await?;
    // Another version than the leader knows, as by a renewal whose answer it does not wait for.
    let leases: Api<Lease> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    let touched = json!({"metadata": {"annotations": {"touched": "true"}}});
    leases.patch("6d4f6a47.jobset.x-k8s.io", &PatchParams::default(), &Patch::Merge(touched)).await?;
    fixture.controller.signal(Signal::TERM)?;
    assert!(fixture.controller.ended().await?.success());
    fixture.controller.logged("released the Lease").await?;
    let after = changed_hands(&fixture, &before).await?;
    assert_eq!(after.lease_transitions, Some(1));
    standby.logged("leading").await?;
    fixture.create(in_place("train", 1, 1)).await?;
    fixture.pods("train", 1, "0").await?;
    fixture.plane.stop().await
}

#[tokio::test]
async fn a_leader_that_stood_still_ends_without_another_write() -> Result<()> {
    let Pair { mut fixture, standby } = Pair::start(&IMPATIENT).await?;
    let before = lease(&fixture).await?;
    fixture.controller.signal(Signal::STOP)?;
    let after = changed_hands(&fixture, &before).await?;
    fixture.create(in_place("train", 1, 1)).await?;
    fixture.pods("train", 1, "0").await?;

    fixture.controller.signal(Signal::CONT)?;
    let status = fixture.controller.ended().await?;
    assert_eq!(status.code(), Some(1));
    let line = fixture.controller.logged("jobset-controller: lost the Lease").await?;
    assert!(line.contains("6d4f6a47.jobset.x-k8s.io"), "{line}");
    assert_eq!(lease(&fixture).await?.holder_identity, after.holder_identity);
    assert!(!fixture.controller.log()?.contains("ERROR"));
    drop(standby);
    fixture.plane.stop().await
}

#[tokio::test]
async fn durations_that_do_not_fit_are_refused_at_the_start() -> Result<()> {
    let fixture = Fixture::start().await?;
    let mut program = Program::start(&fixture.plane, "refused", &["--leader-elect-lease-duration=5s"])?;
    assert_eq!(program.ended().await?.code(), Some(1));
    program
        .logged("leader election cannot work with these durations: --leader-elect-lease-duration 5s must be")
        .await?;
    fixture.plane.stop().await
}

fn counters(jobset: &JobSet) -> (i32, i32, i32, i32) {
    outcome::epochs(&jobset.status.clone().unwrap_or_default())
}

impl Pair {
    /// Kills the leader. The other one leads once the Lease has expired, and a third stands by.
    async fn leader_dies(&mut self, third: &str) -> Result<()> {
        let before = lease(&self.fixture).await?;
        self.fixture.controller.signal(Signal::KILL)?;
        changed_hands(&self.fixture, &before).await?;
        self.replace_leader(third).await
    }

    /// Asks the leader to stop. The other one leads at once, and a third stands by.
    async fn leader_stops(&mut self, third: &str) -> Result<()> {
        self.fixture.controller.signal(Signal::TERM)?;
        self.fixture.controller.ended().await?;
        self.standby.logged("leading").await?;
        self.replace_leader(third).await
    }

    /// The one that stood by is the leader now, and a third stands by.
    async fn replace_leader(&mut self, third: &str) -> Result<()> {
        let third = Program::start(&self.fixture.plane, third, &IMPATIENT)?;
        self.fixture.controller = std::mem::replace(&mut self.standby, third);
        self.standby.logged("standing by").await?;
        Ok(())
    }
}

/// What has just happened when the leader is killed, in place.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// A worker has failed: the leader is killed before, while or after it writes that.
    Failure,
    /// The leader has written that the group restarts.
    Count,
    /// All have reported: the leader is killed before, while or after it lifts the barrier.
    Reports,
}

#[tokio::test]
async fn a_restart_is_counted_once_whenever_the_leader_is_killed() -> Result<()> {
    let mut pair = Pair::start(&IMPATIENT).await?;
    pair.fixture.create(in_place("train", 2, 9)).await?;
    let pods = pair.fixture.pods("train", 2, "0").await?;
    let mut history = pair.fixture.history("train").await?;
    for pod in &pods {
        pair.fixture.report(pod, "1").await?;
    }
    while counters(&next(&mut history).await?) != (1, 0, 0, 0) {}

    for (restarts, moment) in (1..).zip([Moment::Failure, Moment::Count, Moment::Reports]) {
        let epoch = (restarts + 1).to_string();
        pair.fixture.report(&pods[0], &epoch).await?;
        if moment != Moment::Failure {
            while counters(&next(&mut history).await?) != (restarts, restarts, restarts, restarts) {}
        }
        if moment == Moment::Reports {
            pair.fixture.report(&pods[1], &epoch).await?;
        }
        pair.leader_dies(&format!("standby-{restarts}")).await?;
        pair.fixture.report(&pods[1], &epoch).await?;
        let lifted = (restarts + 1, restarts, restarts, restarts);
        loop {
            let seen = counters(&next(&mut history).await?);
            assert!(seen <= lifted, "{moment:?}: {seen:?} is more than {lifted:?}");
            if seen == lifted {
                break;
            }
        }
    }
    assert!(!pair.fixture.controller.log()?.contains("ERROR"));
    pair.fixture.plane.stop().await
}

/// Leaders go when a restart is requested, when it is counted, and when all have reported; each fifth is killed.
#[tokio::test]
async fn fifty_requests_over_fifty_leaders_restart_fifty_times() -> Result<()> {
    const REQUESTS: i32 = 50;
    let mut pair = Pair::start(&IMPATIENT).await?;
    pair.fixture.create(in_place("train", 1, REQUESTS)).await?;
    let pods = pair.fixture.pods("train", 1, "0").await?;
    let mut history = pair.fixture.history("train").await?;
    pair.fixture.report(&pods[0], "1").await?;
    while counters(&next(&mut history).await?) != (1, 0, 0, 0) {}
    pair.fixture.run(&pods[0]).await?;
    pair.fixture.status_once("train", "to be ready", |status| status.jobs_ready == "1/1").await?;
    for number in 1..=REQUESTS {
        let id = format!("request-{number}");
        let request = json!({"id": id, "pod": pods[0].name_any()}).to_string();
        let annotated = json!({"metadata": {"annotations": {"jobset.sigs.k8s.io/restart-request": request}}});
        pair.fixture.edit("train", annotated).await?;
        let moment = [Moment::Failure, Moment::Count, Moment::Reports][usize::try_from(number % 3)?];
        if moment != Moment::Failure {
            while counters(&next(&mut history).await?) != (number, number, number, number) {}
        }
        if moment == Moment::Reports {
            pair.fixture.reset(&pods[0]).await?;
            pair.fixture.report(&pods[0], &(number + 1).to_string()).await?;
        }
        let next_standby = format!("standby-{number}");
        if number % 5 == 0 {
            pair.leader_dies(&next_standby).await?;
        } else {
            pair.leader_stops(&next_standby).await?;
        }
        if moment == Moment::Failure {
            while counters(&next(&mut history).await?) != (number, number, number, number) {}
        }
        if moment != Moment::Reports {
            pair.fixture.reset(&pods[0]).await?;
        }
        pair.fixture.status_once("train", "to restart", |status| status.jobs_ready == "0/1").await?;
        pair.fixture.report(&pods[0], &(number + 1).to_string()).await?;
        let lifted = (number + 1, number, number, number);
        let status = loop {
            let jobset = next(&mut history).await?;
            assert!(counters(&jobset) <= lifted, "{id}: {:?} is more than {lifted:?}", counters(&jobset));
            if counters(&jobset) == lifted {
                break jobset.status.unwrap_or_default();
            }
        };
        let handled = status.restart_requests.unwrap_or_default();
        let last = handled.last().map(|it| (it.id.as_str(), it.outcome.as_str(), it.restart));
        assert_eq!(last, Some((id.as_str(), "CarriedOut", Some(number))));
        // A request that comes before the worker has started again is noted, and not carried out.
        pair.fixture.run(&pods[0]).await?;
        pair.fixture.status_once("train", "to be ready", |status| status.jobs_ready == "1/1").await?;
    }
    pair.fixture.settle().await?;
    assert_eq!(restarts(&pair.fixture.status("train").await?), (0, REQUESTS, REQUESTS));
    pair.fixture.plane.stop().await
}

/// The waits are those of the status; the time from the failure to the next epoch is measured.
#[tokio::test]
async fn wait_before_restart_leader_killed_lasts_as_long() -> Result<()> {
    let mut pair = Pair::start(&IMPATIENT).await?;
    let mut jobset = in_place("train", 1, 99);
    jobset["spec"]["failurePolicy"]["restartBackoff"] = json!({"initialSeconds": 3});
    pair.fixture.create(jobset).await?;
    let pods = pair.fixture.pods("train", 1, "0").await?;
    let mut history = pair.fixture.history("train").await?;
    let mut waits = Vec::new();
    for epoch in 1..=5 {
        pair.fixture.report(&pods[0], &epoch.to_string()).await?;
        if epoch == 4 {
            while next(&mut history).await?.status.is_none_or(|status| status.barrier_until.is_none()) {}
            pair.leader_dies("third").await?;
        }
        let lifted = loop {
            let status = next(&mut history).await?.status.unwrap_or_default();
            if status.synced_epoch == epoch {
                break status;
            }
        };
        let MicroTime(began) = lifted.epoch_transition_time.context("no time of the epoch")?;
        waits.extend(lifted.recent_restarts.last().map(|last| began.duration_since(last.start_time.0).as_secs_f64()));
    }
    let within = |wait: f64, expected: f64| wait >= expected && wait <= expected * 1.1 + 0.1;
    let expected = [0.0, 3.0, 6.0, 12.0];
    assert!(waits.len() == 4 && waits.iter().zip(expected).all(|(wait, it)| within(*wait, it)), "{waits:?}");
    pair.fixture.plane.stop().await
}

/// What has just happened when the leader is killed, by recreation.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A Job has failed: the leader is killed before, while or after it writes that.
    Failure,
    /// The leader has written that all Jobs are recreated: it is killed before, while or after it deletes them.
    Count,
    Deletion,
    Creation,
}

#[tokio::test]
async fn recreation_counts_once_whenever_leader_is_killed() -> Result<()> {
    let mut pair = Pair::start(&IMPATIENT).await?;
    pair.fixture.create(recreated("train", &json!({"maxRestarts": 9}), &[("w", 2)])).await?;
    for (restart, step) in (1..).zip([Step::Failure, Step::Count, Step::Deletion, Step::Creation]) {
        let space = &pair.fixture;
        space.pods("train", 2, &(restart - 1).to_string()).await?;
        let (failed, other) = (space.job("train-w-0").await?, space.job("train-w-1").await?);
        space.fail_job("train-w-0", "BackoffLimitExceeded").await?;
        match step {
            Step::Failure => {
                let is_failed = |it: &JobCondition| it.type_ == "Failed" && it.status == "True";
                let has_failed = |job: &Job| job.status.iter().any(|it| it.conditions.iter().flatten().any(is_failed));
                // The leader may be quicker than this looks.
                let over = |job: &Job| has_failed(job) || job.uid() != failed.uid();
                space.job_where("train-w-0", "to fail", over).await?;
            }
            Step::Count => {
                space.restarted("train", (restart, restart, restart)).await?;
            }
            Step::Deletion => {
                wait::until(LIMIT, "a Job to go", || async {
                    let job = space.jobs().get_opt("train-w-1").await?.filter(|job| job.uid() == other.uid());
                    Ok(job.is_none_or(|job| job.metadata.deletion_timestamp.is_some()).then_some(()))
                })
                .await?;
            }
            Step::Creation => {
                space.job_after(&failed).await?;
            }
        }
        pair.leader_dies(&format!("standby-{restart}")).await?;
        pair.fixture.pods("train", 2, &restart.to_string()).await?;
        let status = pair.fixture.status("train").await?;
        assert_eq!(restarts(&status), (restart, restart, restart), "{step:?}");
    }
    assert!(!pair.fixture.controller.log()?.contains("ERROR"));
    pair.fixture.plane.stop().await
}
