//! Of several controllers, one leads.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jobset_api::JobSet;
use jobset_e2e::wait::{self, Seen};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube::api::{Patch, PatchParams};
use rustix::process::Signal;
use serde_json::json;

use crate::fixture::{Fixture, LIMIT, in_place, next};
use crate::program::{NAMESPACE, Program};

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

async fn lease(fixture: &Fixture) -> Result<LeaseSpec> {
    let leases: Api<Lease> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    leases.get("6d4f6a47.jobset.x-k8s.io").await?.spec.context("an empty Lease")
}

/// The Lease, once it has changed hands.
async fn changed_hands(fixture: &Fixture, before: &LeaseSpec) -> Result<LeaseSpec> {
    wait::until_seen(LIMIT, "the Lease to change hands", || async {
        let lease = lease(fixture).await?;
        let holder = lease.holder_identity.clone().unwrap_or_default();
        let changed = !holder.is_empty() && lease.holder_identity != before.holder_identity;
        Ok(if changed { Seen::Yes(lease) } else { Seen::NotYet(holder) })
    })
    .await
}

#[tokio::test]
async fn a_standby_is_ready_writes_nothing_and_takes_over_once_the_lease_of_a_killed_leader_expires() -> Result<()> {
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
async fn a_leader_that_is_told_to_stop_hands_over_at_once() -> Result<()> {
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

/// `(syncedEpoch, deprecatedEpoch, restartsCountTowardsMax, groupRestarts)`.
fn counters(jobset: &JobSet) -> (i32, i32, i32, i32) {
    let status = jobset.status.clone().unwrap_or_default();
    (status.synced_epoch, status.deprecated_epoch, status.restarts_count_towards_max, status.group_restarts)
}

/// What has just happened when the leader is killed.
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
    let Pair { mut fixture, mut standby } = Pair::start(&IMPATIENT).await?;
    fixture.create(in_place("train", 2, 9)).await?;
    let pods = fixture.pods("train", 2, "0").await?;
    let mut history = fixture.history("train").await?;
    for pod in &pods {
        fixture.report(pod, "1").await?;
    }
    while counters(&next(&mut history).await?) != (1, 0, 0, 0) {}

    for (restarts, moment) in (1..).zip([Moment::Failure, Moment::Count, Moment::Reports]) {
        let before = lease(&fixture).await?;
        let epoch = (restarts + 1).to_string();
        fixture.report(&pods[0], &epoch).await?;
        if moment != Moment::Failure {
            while counters(&next(&mut history).await?) != (restarts, restarts, restarts, restarts) {}
        }
        if moment == Moment::Reports {
            fixture.report(&pods[1], &epoch).await?;
        }
        fixture.controller.signal(Signal::KILL)?;
        changed_hands(&fixture, &before).await?;
        fixture.report(&pods[1], &epoch).await?;
        let lifted = (restarts + 1, restarts, restarts, restarts);
        loop {
            let seen = counters(&next(&mut history).await?);
            assert!(seen <= lifted, "{moment:?}: {seen:?} is more than {lifted:?}");
            if seen == lifted {
                break;
            }
        }
        // The successor leads; another stands by.
        fixture.controller = std::mem::replace(
            &mut standby,
            Program::start(&fixture.plane, &format!("standby-{restarts}"), &IMPATIENT)?,
        );
        standby.logged("standing by").await?;
    }
    assert!(!fixture.controller.log()?.contains("ERROR"));
    fixture.plane.stop().await
}
