//! Acquires, renews and releases the Lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use prometheus::{IntGauge, Registry};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Candidate, Leadership, LeaseDecision, Record, Terms};
use crate::shell::error::{Error, code};
use crate::shell::retry_log::RetryLog;

/// This replica has stopped to be the leader without wanting it. Nothing that it does now may be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Lost {
    #[error("the Lease could not be renewed for {0:?}")]
    NotRenewed(Duration),
    #[error("{0} holds the Lease")]
    Taken(String),
}

/// One replica's part in the election.
pub struct Elector {
    terms: Terms,
    candidate: Candidate,
    leases: Api<Lease>,
    /// The Lease as it was read or written last: its version is what the next write is made against.
    lease: Option<Lease>,
    leadership: watch::Sender<Leadership>,
    gauge: IntGauge,
    retry_log: RetryLog,
}

/// How an attempt to get or to keep the Lease ended.
enum Standing {
    Leading,
    Following(String),
    /// The Lease was written by something else at the same time: the next attempt sees what that was.
    Contended,
}

impl Elector {
    /// A candidate. The client is used for nothing else, so that no other request delays a renewal.
    ///
    /// # Errors
    /// If the metric is registered already.
    pub fn new(client: Client, terms: Terms, registry: &Registry) -> Result<Self, Error> {
        let gauge = IntGauge::new("jobset_leader", "1 while this replica leads, else 0.").map_err(Error::Metrics)?;
        registry.register(Box::new(gauge.clone())).map_err(Error::Metrics)?;
        Ok(Self {
            candidate: Candidate::new(terms.identity.clone(), terms.lease_duration),
            leases: Api::namespaced(client, &terms.namespace),
            lease: None,
            leadership: watch::Sender::default(),
            gauge,
            retry_log: RetryLog::default(),
            terms,
        })
    }

    /// Whether this replica leads, from now on.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// Stands for election until `stop`; as the leader, until the work is `drained`, and then hands over.
    ///
    /// # Errors
    /// If the leadership is lost.
    pub async fn run(mut self, stop: CancellationToken, drained: CancellationToken) -> Result<(), Error> {
        let name = self.terms.name.clone();
        let Some(deadline) = stop.run_until_cancelled(self.acquire()).await else { return Ok(()) };
        info!(lease = name, identity = self.terms.identity, "leading");
        self.gauge.set(1);
        let kept = drained.run_until_cancelled(self.keep(deadline)).await;
        self.leadership.send_replace(Leadership::Standby);
        self.gauge.set(0);
        if let Some(lost) = kept {
            return Err(Error::LeaseLost(name, lost));
        }
        self.release().await;
        Ok(())
    }

    /// Leads without an election, until the work is done.
    pub async fn unopposed(self, drained: CancellationToken) {
        self.gauge.set(1);
        self.leadership.send_replace(Leadership::Leading { until: None });
        drained.cancelled().await;
    }

    /// Waits until this replica leads; until when it does if it does not renew.
    async fn acquire(&mut self) -> Instant {
        let mut known = None;
        loop {
            let sent = Instant::now();
            match timeout_at(sent + self.request_timeout(), self.attempt()).await {
                Ok(Ok(Standing::Leading)) => return self.lead_until(sent),
                Ok(Ok(Standing::Following(holder))) => {
                    self.retry_log.succeeded("Lease");
                    if known.as_ref() != Some(&holder) {
                        info!(lease = self.terms.name, holder, "standing by");
                        known = Some(holder);
                    }
                }
                Ok(Ok(Standing::Contended)) => {}
                Ok(Err(error)) => self.retry_log.failed("Lease", &error),
                Err(late) => self.retry_log.failed("Lease", &late),
            }
            // Never longer than a period, so that a Lease that was released is taken within one; not all at once.
            sleep(self.terms.retry_period.mul_f64(0.7 + 0.3 * fastrand::f64())).await;
        }
    }

    /// Renews until that fails for too long.
    async fn keep(&mut self, mut deadline: Instant) -> Lost {
        let mut next = Instant::now() + self.terms.retry_period;
        loop {
            sleep_until(next.min(deadline)).await;
            let sent = Instant::now();
            if sent >= deadline {
                return Lost::NotRenewed(self.terms.renew_deadline);
            }
            next = sent + self.terms.retry_period;
            match timeout_at(deadline.min(sent + self.request_timeout()), self.attempt()).await {
                Ok(Ok(Standing::Leading)) => deadline = self.lead_until(sent),
                Ok(Ok(Standing::Following(holder))) => return Lost::Taken(holder),
                Ok(Ok(Standing::Contended)) => {}
                Ok(Err(error)) => self.retry_log.failed("Lease", &error),
                Err(late) => self.retry_log.failed("Lease", &late),
            }
        }
    }

    /// The Lease was written; the time counts from before the request, as that of the others counts from after it.
    fn lead_until(&mut self, sent: Instant) -> Instant {
        self.retry_log.succeeded("Lease");
        let deadline = sent + self.terms.renew_deadline;
        self.leadership.send_replace(Leadership::Leading { until: Some(deadline.into_std()) });
        deadline
    }

    /// One attempt to get or to keep the Lease.
    async fn attempt(&mut self) -> Result<Standing, kube::Error> {
        // As the leader: on the assumption that nobody has touched the Lease.
        if let Some(record) = self.candidate.renew(Timestamp::now()) {
            match self.write(record).await {
                Ok(()) => return Ok(Standing::Leading),
                Err(error) => debug!(error = &error as &dyn std::error::Error, "the Lease has changed, reading it"),
            }
        }
        match self.read().await? {
            LeaseDecision::Wait { holder } => Ok(Standing::Following(holder)),
            LeaseDecision::Write(record) => match self.write(record).await {
                Ok(()) => Ok(Standing::Leading),
                Err(error) if code(&error) == Some(409) => Ok(Standing::Contended),
                Err(error) => Err(error),
            },
        }
    }

    async fn read(&mut self) -> Result<LeaseDecision, kube::Error> {
        self.lease = self.leases.get_opt(&self.terms.name).await?;
        let record = self.lease.as_ref().map(Record::of);
        Ok(self.candidate.observe(record, std::time::Instant::now(), Timestamp::now()))
    }

    async fn write(&mut self, record: Record) -> Result<(), kube::Error> {
        let params = PostParams::default();
        let mut lease = self.lease.clone().unwrap_or_default();
        record.clone().write(&mut lease);
        let written = if lease.metadata.resource_version.is_some() {
            self.leases.replace(&self.terms.name, &params, &lease).await?
        } else {
            lease.metadata = ObjectMeta { name: Some(self.terms.name.clone()), ..ObjectMeta::default() };
            self.leases.create(&params, &lease).await?
        };
        self.candidate.written(record, std::time::Instant::now());
        self.lease = Some(written);
        Ok(())
    }

    /// Lets the next one lead at once. Without success it leads when the Lease has expired.
    async fn release(&mut self) {
        let deadline = Instant::now() + self.request_timeout();
        match timeout_at(deadline, self.write_release()).await {
            Ok(Ok(())) => info!(lease = self.terms.name, "released the Lease"),
            Ok(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                warn!(lease = self.terms.name, error, "cannot release the Lease, it expires");
            }
            Err(_) => warn!(lease = self.terms.name, "cannot release the Lease in time, it expires"),
        }
    }

    async fn write_release(&mut self) -> Result<(), kube::Error> {
        let Some(record) = self.candidate.release(Timestamp::now()) else { return Ok(()) };
        match self.write(record).await {
            // A renewal that was under way when the work ended has been carried out after all.
            Err(error) if code(&error) == Some(409) => self.read().await?,
            written => return written,
        };
        match self.candidate.release(Timestamp::now()) {
            Some(record) => self.write(record).await,
            None => Ok(()),
        }
    }

    /// A request that hangs leaves time for another one.
    fn request_timeout(&self) -> Duration {
        self.terms.renew_deadline / 2
    }
}
