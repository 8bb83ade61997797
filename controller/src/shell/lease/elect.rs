//! Acquires, renews and releases the Lease.

use anyhow::anyhow;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use prometheus::{IntGauge, Registry, register_int_gauge_with_registry};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Candidate, Leadership, LeaseDecision};
use crate::args::ElectionArgs;
use crate::shell::error::code;
use crate::shell::retry_log::RetryLog;

/// The part of one replica in the election.
pub struct Elector {
    flags: ElectionArgs,
    candidate: Candidate,
    leases: Api<Lease>,
    leadership: watch::Sender<Leadership>,
    gauge: IntGauge,
    retry_log: RetryLog,
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
    /// A candidate. The client is used for nothing else, so that no other request delays a renewal.
    pub fn new(client: Client, flags: ElectionArgs, registry: &Registry) -> anyhow::Result<Self> {
        let name = flags.leader_elect_resource_name.clone();
        let namespace =
            flags.leader_elect_resource_namespace.as_deref().unwrap_or(client.default_namespace()).to_owned();
        Ok(Self {
            candidate: Candidate::new(name, identity(), flags.leader_elect_lease_duration),
            leases: Api::namespaced(client, &namespace),
            leadership: watch::Sender::default(),
            gauge: register_int_gauge_with_registry!("jobset_leader", "1 while this replica leads, else 0.", registry)?,
            retry_log: RetryLog::default(),
            flags,
        })
    }

    /// Whether this replica leads, from now on.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// Stands for election until `stop`. A leader keeps the Lease until its requests are `drained`, and then releases it.
    pub async fn run(mut self, stop: CancellationToken, drained: CancellationToken) -> anyhow::Result<()> {
        let Some(deadline) = stop.run_until_cancelled(self.acquire()).await else { return Ok(()) };
        info!(lease = self.candidate.name, identity = self.candidate.identity, "leading");
        self.gauge.set(1);
        let kept = drained.run_until_cancelled(self.keep(deadline)).await;
        self.leadership.send_replace(Leadership::Standby);
        self.gauge.set(0);
        if let Some(lost) = kept {
            return Err(lost.context(format!("lost the Lease {}, nothing may be done without it", self.candidate.name)));
        }
        self.release().await;
        Ok(())
    }

    /// Leads without an election until the requests are drained.
    pub async fn unopposed(self, drained: CancellationToken) {
        self.gauge.set(1);
        self.leadership.send_replace(Leadership::Leading { until: None });
        drained.cancelled().await;
    }

    /// Waits until this replica leads. Returns the deadline of the first renewal.
    async fn acquire(&mut self) -> Instant {
        let mut known = String::new();
        loop {
            match self.attempt().await {
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

    /// Renews the Lease until that fails for too long. Returns why the leadership is lost.
    async fn keep(&mut self, mut deadline: Instant) -> anyhow::Error {
        let mut next = Instant::now() + self.flags.leader_elect_retry_period;
        loop {
            sleep_until(next.min(deadline)).await;
            let now = Instant::now();
            if now >= deadline {
                return anyhow!("the Lease could not be renewed for {:?}", self.flags.leader_elect_renew_deadline);
            }
            next = now + self.flags.leader_elect_retry_period;
            match timeout_at(deadline, self.attempt()).await {
                Ok(Standing::Leading(until)) => deadline = until,
                Ok(Standing::Following(holder)) => return anyhow!("{holder} holds the Lease"),
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
                self.leadership.send_replace(Leadership::Leading { until: Some(deadline.into_std()) });
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
        if let Some(lease) = self.candidate.renew(Timestamp::now()) {
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

    async fn read(&mut self) -> kube::Result<LeaseDecision> {
        let lease = self.leases.get_opt(&self.candidate.name).await?;
        Ok(self.candidate.observe(lease, std::time::Instant::now(), Timestamp::now()))
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
        while let Some(lease) = self.candidate.release(Timestamp::now()) {
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
