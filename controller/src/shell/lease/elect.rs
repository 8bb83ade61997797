//! Acquires, renews and releases the Lease.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use jobset_engine::Now;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use prometheus::{IntGauge, Registry, register_int_gauge_with_registry};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::watchdog::Watchdog;
use super::{Candidate, Leadership, LeaseDecision};
use crate::args::ElectionArgs;
use crate::shell::client::Clients;
use crate::shell::error::code;
use crate::shell::retry_log::RetryLog;
use crate::shell::{Health, thread};

/// Stands for election until `stop`, on a thread with a runtime and connections of its own: neither a plan, nor a runtime with
/// much to do, nor another request delays a renewal. A leader keeps the Lease until its requests are `drained`, and then releases
/// it. Without an election, this replica leads at once.
///
/// Returns whether this replica leads, from now on, and the end of the election: an error if the leadership is lost, or if the
/// loop stands still.
pub fn start(
    clients: Clients,
    flags: ElectionArgs,
    health: Health,
    registry: &Registry,
    stop: CancellationToken,
    drained: CancellationToken,
) -> anyhow::Result<(watch::Receiver<Leadership>, impl Future<Output = anyhow::Result<()>> + use<>)> {
    let leadership = watch::Sender::<Leadership>::default();
    let leads = leadership.subscribe();
    let gauge = register_int_gauge_with_registry!("jobset_leader", "1 while this replica leads, else 0.", registry)?;
    let run = move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start a runtime for the election")?;
        let end = runtime.block_on(async move {
            if flags.leader_elect {
                Elector::new(clients.elector()?, flags, health, leadership, gauge).run(stop, drained).await
            } else {
                gauge.set(1);
                leadership.send_replace(Leadership::Leading { until: None, clock: None });
                drained.cancelled().await;
                Ok(())
            }
        });
        // A name that is still being looked up does not keep the thread.
        runtime.shutdown_background();
        end
    };
    Ok((leads, thread::spawn("election", run)?))
}

/// The part of one replica in the election.
struct Elector {
    flags: ElectionArgs,
    candidate: Candidate,
    leases: Api<Lease>,
    health: Health,
    watchdog: Watchdog,
    leadership: watch::Sender<Leadership>,
    clock: Option<Now>,
    gauge: IntGauge,
    retry_log: RetryLog,
}

/// Why a leader leads no longer.
enum LeadershipEnd {
    Lost(anyhow::Error),
    /// The loop stands still for this time.
    StandsStill(Duration),
}

/// The result of an attempt to get or to keep the Lease.
enum Standing {
    /// This replica leads until this deadline.
    Leading(Instant),
    /// This candidate holds the Lease.
    Following(String),
    /// The request failed, or another client has written the Lease at the same time.
    Unknown,
}

impl Elector {
    /// A candidate. The client is used for nothing else.
    fn new(
        client: Client,
        flags: ElectionArgs,
        health: Health,
        leadership: watch::Sender<Leadership>,
        gauge: IntGauge,
    ) -> Self {
        let name = flags.leader_elect_resource_name.clone();
        let namespace =
            flags.leader_elect_resource_namespace.as_deref().unwrap_or(client.default_namespace()).to_owned();
        Self {
            candidate: Candidate::new(name, identity(), flags.leader_elect_lease_duration),
            leases: Api::namespaced(client, &namespace),
            health,
            watchdog: Watchdog::new(flags.leader_elect_lease_duration),
            leadership,
            clock: None,
            gauge,
            retry_log: RetryLog::default(),
            flags,
        }
    }

    async fn run(mut self, stop: CancellationToken, drained: CancellationToken) -> anyhow::Result<()> {
        let Some(deadline) = stop.run_until_cancelled(self.acquire()).await else { return Ok(()) };
        info!(lease = self.candidate.name, identity = self.candidate.identity, "leading");
        self.gauge.set(1);
        let end = drained.run_until_cancelled(self.keep(deadline)).await;
        // From now on no request is sent, whenever the loop goes on.
        self.leadership.send_replace(Leadership::Standby);
        self.gauge.set(0);
        let lease = self.candidate.name.clone();
        match end {
            None => self.release().await,
            Some(LeadershipEnd::Lost(error)) => {
                return Err(error.context(format!("lost the Lease {lease}, nothing may be done without it")));
            }
            Some(LeadershipEnd::StandsStill(age)) => {
                let planned = self.health.planned();
                self.release().await;
                let during = planned.map(|key| format!(" while it plans for JobSet {key}")).unwrap_or_default();
                let seconds = age.as_secs();
                bail!(
                    "the loop stands still for {seconds} s{during}; gave the Lease {lease} up, so that another replica leads"
                );
            }
        }
        Ok(())
    }

    fn stands_still(&mut self) -> Option<Duration> {
        self.watchdog.look(self.health.last_turn(), std::time::Instant::now())
    }

    /// Waits until this replica leads. Returns the deadline of the first renewal.
    async fn acquire(&mut self) -> Instant {
        let mut known = String::new();
        loop {
            // A replica that stands still must not lead.
            let standing = if self.stands_still().is_some() { Standing::Unknown } else { self.attempt().await };
            match standing {
                Standing::Leading(deadline) => return deadline,
                Standing::Following(holder) if holder != known => {
                    info!(lease = self.candidate.name, holder, "standing by");
                    known = holder;
                }
                Standing::Following(_) | Standing::Unknown => {}
            }
            // A released Lease is acquired within one period. The jitter keeps replicas apart.
            sleep(self.flags.leader_elect_retry_period.mul_f64(0.7 + 0.3 * fastrand::f64())).await;
        }
    }

    /// Renews the Lease until that fails for too long, or until the loop stands still.
    async fn keep(&mut self, mut deadline: Instant) -> LeadershipEnd {
        let mut next = Instant::now() + self.flags.leader_elect_retry_period;
        loop {
            sleep_until(next.min(deadline)).await;
            let now = Instant::now();
            if now >= deadline {
                let deadline = self.flags.leader_elect_renew_deadline;
                return LeadershipEnd::Lost(anyhow!("the Lease could not be renewed for {deadline:?}"));
            }
            if let Some(age) = self.stands_still() {
                return LeadershipEnd::StandsStill(age);
            }
            next = now + self.flags.leader_elect_retry_period;
            match timeout_at(deadline, self.attempt()).await {
                Ok(Standing::Leading(until)) => deadline = until,
                Ok(Standing::Following(holder)) => return LeadershipEnd::Lost(anyhow!("{holder} holds the Lease")),
                Ok(Standing::Unknown) | Err(_) => {}
            }
        }
    }

    /// One attempt to get or to keep the Lease. A request that hangs leaves time for another attempt.
    async fn attempt(&mut self) -> Standing {
        let sent = Instant::now();
        match timeout(self.flags.leader_elect_renew_deadline / 2, self.negotiate()).await {
            Ok(Ok(None)) => {
                self.retry_log.succeeded("Lease");
                // The deadline counts from before the request. The other candidates count from after it.
                let deadline = sent + self.flags.leader_elect_renew_deadline;
                if self.clock.is_none() {
                    let acquired_at = self.candidate.acquired_at();
                    self.clock = acquired_at.map(|time| Now { instant: sent.into_std(), time });
                }
                let (until, clock) = (Some(deadline.into_std()), self.clock);
                self.leadership.send_replace(Leadership::Leading { until, clock });
                return Standing::Leading(deadline);
            }
            Ok(Ok(Some(holder))) => {
                self.retry_log.succeeded("Lease");
                return Standing::Following(holder);
            }
            Ok(Err(error)) if code(&error) == Some(409) => debug!("another client has written the Lease"),
            Ok(Err(error)) => self.retry_log.failed("Lease", &error),
            Err(late) => self.retry_log.failed("Lease", &late),
        }
        Standing::Unknown
    }

    /// Writes the Lease. Returns the holder if that is another candidate.
    async fn negotiate(&mut self) -> kube::Result<Option<String>> {
        // A leader expects that no other client has written the Lease, and does not read it first.
        if let Some(lease) = self.candidate.renew(self.time()) {
            match self.write(lease).await {
                Ok(()) => return Ok(None),
                Err(error) => debug!(error = &error as &dyn std::error::Error, "the Lease has changed, reading it"),
            }
        }
        match self.read().await? {
            LeaseDecision::Wait(holder) => Ok(Some(holder)),
            LeaseDecision::Write(lease) => self.write(*lease).await.map(|()| None),
        }
    }

    fn time(&self) -> Timestamp {
        self.clock.map_or_else(Timestamp::now, |clock| clock.after(std::time::Instant::now()))
    }

    async fn read(&mut self) -> kube::Result<LeaseDecision> {
        let lease = self.leases.get_opt(&self.candidate.name).await?;
        Ok(self.candidate.observe(lease, std::time::Instant::now(), self.time()))
    }

    async fn write(&mut self, lease: Lease) -> kube::Result<()> {
        let params = PostParams::default();
        let written = if lease.metadata.resource_version.is_some() {
            self.leases.replace(&self.candidate.name, &params, &lease).await?
        } else {
            self.leases.create(&params, &lease).await?
        };
        self.candidate.written(written, std::time::Instant::now());
        Ok(())
    }

    /// Releases the Lease, so that another candidate leads at once. Without success the Lease expires.
    async fn release(&mut self) {
        let lease = self.candidate.name.clone();
        match timeout(self.flags.leader_elect_renew_deadline / 2, self.write_release()).await {
            Ok(Ok(())) => info!(lease, "released the Lease"),
            Ok(Err(error)) => {
                warn!(lease, error = &error as &dyn std::error::Error, "cannot release the Lease, it expires");
            }
            Err(_) => warn!(lease, "cannot release the Lease in time, it expires"),
        }
    }

    async fn write_release(&mut self) -> kube::Result<()> {
        while let Some(lease) = self.candidate.release(self.time()) {
            match self.write(lease).await {
                // A renewal that was under way at the end of the work was carried out.
                Err(error) if code(&error) == Some(409) => drop(self.read().await?),
                written => return written,
            }
        }
        Ok(())
    }
}

/// The name of the host, which in a Pod is that of the Pod, and a random number: each process is another candidate.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{:016x}", host.trim(), fastrand::u64(..))
}
