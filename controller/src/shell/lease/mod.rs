//! Leader election by a Lease (`coordination.k8s.io/v1`), with the semantics of client-go: whoever holds the Lease leads.
//!
//! [`Candidate`] decides, without a clock and without a client; [`elect`] reads and writes the Lease; [`Leadership`] is
//! what the rest of the controller sees of it.

mod elect;
mod leadership;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

pub use elect::{Elector, Lost};
pub use leadership::Leadership;

/// Who is a candidate, for which Lease, and how patient everybody is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Name of the candidate, unlike that of any other, a previous run of the same Pod included.
    pub identity: String,
    /// For how long the others wait for a leader that does not renew.
    pub lease_duration: Duration,
    /// For how long a leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// Time between two attempts.
    pub retry_period: Duration,
}

/// The durations do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum InvalidTerms {
    #[error("--leader-elect-lease-duration {0:?} is not whole seconds")]
    Fraction(Duration),
    #[error("--leader-elect-lease-duration {0:?} must be longer than --leader-elect-renew-deadline {1:?}")]
    RenewDeadline(Duration, Duration),
    #[error("--leader-elect-renew-deadline {0:?} must be longer than --leader-elect-retry-period {1:?} times 1.2")]
    RetryPeriod(Duration, Duration),
}

impl Terms {
    /// Whether a leader gives up before the others stop waiting for it.
    ///
    /// # Errors
    /// If it does not, or could not even try twice.
    pub fn check(&self) -> Result<(), InvalidTerms> {
        let Self { lease_duration, renew_deadline, retry_period, .. } = *self;
        if lease_duration.subsec_nanos() > 0 {
            return Err(InvalidTerms::Fraction(lease_duration));
        }
        if lease_duration <= renew_deadline {
            return Err(InvalidTerms::RenewDeadline(lease_duration, renew_deadline));
        }
        if renew_deadline <= retry_period.mul_f64(1.2) {
            return Err(InvalidTerms::RetryPeriod(renew_deadline, retry_period));
        }
        Ok(())
    }
}

/// What a Lease says about its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; empty once it was released.
    pub holder: String,
    /// For how long it is held after each renewal.
    pub duration: Duration,
    /// When its holder got it.
    pub acquired: Option<Timestamp>,
    /// When its holder renewed it last, by the holder's clock. Nobody else computes with it.
    pub renewed: Option<Timestamp>,
    /// How often it went from one holder to another.
    pub transitions: i32,
}

impl Record {
    /// Reads a Lease.
    pub fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        Self {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: Duration::from_secs(spec.lease_duration_seconds.unwrap_or(0).try_into().unwrap_or(0)),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or(0),
        }
    }

    /// Writes itself into a Lease; what else the Lease holds is kept.
    pub fn write(self, lease: &mut Lease) {
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.holder),
            lease_duration_seconds: Some(self.duration.as_secs().try_into().unwrap_or(i32::MAX)),
            acquire_time: self.acquired.map(MicroTime),
            renew_time: self.renewed.map(MicroTime),
            lease_transitions: Some(self.transitions),
            ..lease.spec.take().unwrap_or_default()
        });
    }
}

/// What a candidate should do about the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseDecision {
    /// Write this record, against the version that was observed: whoever succeeds leads.
    Write(Record),
    /// Another holds it.
    Wait {
        /// Its name.
        holder: String,
    },
}

/// One candidate's view of the Lease.
///
/// A candidate trusts no clock but its own. The Lease has expired when its record has not **changed** for as long as the
/// record says, measured since the candidate saw the change; what the holder wrote as the time of renewal is not looked
/// at.
#[derive(Debug)]
pub struct Candidate {
    identity: String,
    duration: Duration,
    observed: Option<(Record, Instant)>,
}

impl Candidate {
    /// A candidate that has not seen the Lease yet.
    pub fn new(identity: String, duration: Duration) -> Self {
        Self { identity, duration, observed: None }
    }

    /// The Lease was read, or found to be absent. `now` is the candidate's clock, `time` what to write into the record.
    pub fn observe(&mut self, record: Option<Record>, now: Instant, time: Timestamp) -> LeaseDecision {
        let Some(record) = record else {
            self.observed = None;
            return LeaseDecision::Write(self.acquisition(0, time));
        };
        let since = match &self.observed {
            Some((before, since)) if *before == record => *since,
            _ => now,
        };
        self.observed = Some((record.clone(), since));
        if record.holder == self.identity {
            return LeaseDecision::Write(self.renewal(record, time));
        }
        let held = !record.holder.is_empty() && now < since + record.duration;
        if held {
            LeaseDecision::Wait { holder: record.holder }
        } else {
            // One that nobody has held yet, as it is installed, changes no hands.
            let changes_hands = i32::from(record.acquired.is_some() || !record.holder.is_empty());
            LeaseDecision::Write(self.acquisition(record.transitions.saturating_add(changes_hands), time))
        }
    }

    /// The record was written.
    pub fn written(&mut self, record: Record, now: Instant) {
        self.observed = Some((record, now));
    }

    /// What the leader writes to stay it, if it is the leader as far as it knows.
    pub fn renew(&self, time: Timestamp) -> Option<Record> {
        self.own().map(|record| self.renewal(record.clone(), time))
    }

    /// What the leader writes to stop being it: whoever reads this need not wait.
    pub fn release(&self, time: Timestamp) -> Option<Record> {
        self.own().map(|record| Record {
            holder: String::new(),
            duration: Duration::from_secs(1),
            acquired: Some(time),
            renewed: Some(time),
            transitions: record.transitions,
        })
    }

    fn own(&self) -> Option<&Record> {
        self.observed.as_ref().map(|(record, _)| record).filter(|record| record.holder == self.identity)
    }

    fn acquisition(&self, transitions: i32, time: Timestamp) -> Record {
        Record {
            holder: self.identity.clone(),
            duration: self.duration,
            acquired: Some(time),
            renewed: Some(time),
            transitions,
        }
    }

    fn renewal(&self, record: Record, time: Timestamp) -> Record {
        Record { duration: self.duration, renewed: Some(time), ..record }
    }
}
