//! A plan that lasts long costs the leader nothing; a loop that stands still costs it the Lease.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jobset_controller::shell::Health;
use jobset_harness::wait::{self, Check};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fixture::{LIMIT, Space, Vacant};
use crate::jobsets::{group, jobset};
use crate::leader::lease;
use crate::program::run_here;

/// A JobSet whose first plan lasts until the test ends it.
const SLOW: &str = "slow";
const RENEW_DEADLINE: Duration = Duration::from_secs(4);
/// Limit of a thread that waits for the test, which has given up by then.
const GIVEN_UP: Duration = Duration::from_mins(10);

/// A controller in this process whose loop is in the plan of [`SLOW`].
struct Blocked {
    vacant: Vacant,
    stop: CancellationToken,
    ended: JoinHandle<Result<()>>,
    /// Ends the plan.
    go_on: Sender<()>,
    health: Health,
    since: Timestamp,
}

impl Blocked {
    async fn start(lease_duration: &str) -> Result<Self> {
        let vacant = Vacant::start().await?;
        let ((plans, planned), (go_on, goes_on)) = (channel(), channel());
        let goes_on = Mutex::new(Some(goes_on));
        let health = Health::calling(move |key| {
            let first = goes_on.lock().unwrap_or_else(PoisonError::into_inner).take_if(|_| key.name == SLOW);
            if let Some(goes_on) = first {
                let _ = plans.send(());
                let _ = goes_on.recv_timeout(GIVEN_UP);
            }
        });
        let arguments = [
            &format!("--leader-elect-lease-duration={lease_duration}"),
            &format!("--leader-elect-renew-deadline={}s", RENEW_DEADLINE.as_secs()),
            "--leader-elect-retry-period=500ms",
        ];
        let (stop, ended) = run_here(vacant.plane(), &health, &arguments).await?;
        vacant.create(jobset(SLOW, &[group("w", 1, 1)])).await?;
        wait::until(LIMIT, "the plan", || async { Ok(planned.try_recv().ok()) }).await?;
        Ok(Self { vacant, stop, ended, go_on, health, since: Timestamp::now() })
    }
}

async fn jobs(space: &Space) -> Result<usize> {
    Ok(space.jobs().list(&ListParams::default()).await?.items.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_longer_than_renew_deadline_keeps_lease() -> Result<()> {
    let blocked = Blocked::start("30s").await?;
    let space: &Space = &blocked.vacant;
    let begin = lease(space).await?;
    let longer = blocked.since + SignedDuration::try_from(RENEW_DEADLINE * 2)?;
    wait::until_met(LIMIT, "renewals beyond the renew deadline", || async {
        let renewed = lease(space).await?.renew_time.context("no time of renewal")?.0;
        ensure!(!blocked.ended.is_finished(), "the controller has ended");
        Ok(if renewed > longer {
            Check::Met(())
        } else {
            Check::Unmet(format!("renewed at {renewed}, not after {longer}"))
        })
    })
    .await?;
    ensure!(jobs(space).await? == 0, "the plan has ended");
    blocked.go_on.send(())?;
    space.pods_of("slow-w-0", 1).await?;
    let end = lease(space).await?;
    ensure!((&end.holder_identity, end.lease_transitions) == (&begin.holder_identity, begin.lease_transitions));
    blocked.stop.cancel();
    blocked.ended.await??;
    ensure!(lease(space).await?.holder_identity.as_deref() == Some(""), "the Lease is not released");
    blocked.vacant.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_standing_still_gives_lease_up_and_wakes_standby() -> Result<()> {
    let blocked = Blocked::start("5s").await?;
    let space: &Space = &blocked.vacant;
    let error = tokio::time::timeout(LIMIT, blocked.ended).await.context("it has not ended")??.unwrap_err();
    let text = error.to_string();
    ensure!(text.contains("the loop stands still for ") && text.contains("JobSet default/slow"), "{text}");
    ensure!(lease(space).await?.holder_identity.as_deref() == Some(""), "the Lease is not released");

    // The loop goes on, with a plan that creates a Job, and takes turns again.
    let awake = Instant::now();
    blocked.go_on.send(())?;
    wait::until(LIMIT, "turns of the loop", || async {
        Ok(blocked.health.last_turn().filter(|turn| *turn > awake + Duration::from_secs(3)))
    })
    .await?;
    ensure!(jobs(space).await? == 0, "a replica that does not lead has created a Job");
    ensure!(space.jobsets().get(SLOW).await?.status.is_none(), "a replica that does not lead has written a status");
    blocked.stop.cancel();
    blocked.vacant.stop().await
}
