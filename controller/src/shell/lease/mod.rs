//! Leader election by a Lease (`coordination.k8s.io/v1`), with the semantics of client-go: the holder of the Lease leads.
//!
//! [`Candidate`] decides, without a clock and without a client. [`start`] reads and writes the Lease, on a thread of its own.
//! [`Leadership`] is the result for the rest of the controller. The `watchdog` gives the Lease up when the loop stands still.

mod elect;
mod leadership;
#[cfg(test)]
mod tests;
mod watchdog;

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

pub use elect::start;
pub use leadership::{Leadership, NotLeading};

/// The decision of a candidate about the Lease.
#[derive(Clone, Debug, PartialEq)]
enum LeaseDecision {
    /// Write this Lease. The candidate leads if the API server accepts its resource version.
    Write(Box<Lease>),
    /// This candidate holds the Lease.
    Wait(String),
}

/// The view of one candidate.
///
/// A candidate trusts no clock but its own. The Lease has expired when it has not **changed** for as long as it says, counted
/// from when the candidate has observed the change. The time of renewal in the Lease is used for one thing: the times that this
/// leader states begin after all that the last one may have stated, so that agents do not take it for a leader of the past.
#[derive(Debug)]
struct Candidate {
    name: String,
    identity: String,
    duration: Duration,
    observed: Option<(Lease, Instant)>,
}

impl Candidate {
    /// A candidate that has not observed the Lease of this name yet.
    fn new(name: String, identity: String, duration: Duration) -> Self {
        Self { name, identity, duration, observed: None }
    }

    /// The Lease was read, or does not exist. `now` is the time by the candidate's clock, `time` is for the Lease.
    fn observe(&mut self, lease: Option<Lease>, now: Instant, time: Timestamp) -> LeaseDecision {
        let Some(lease) = lease else {
            self.observed = None;
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            return LeaseDecision::Write(self.acquire(Lease { metadata, spec: None }, time).into());
        };
        let since = match &self.observed {
            Some((before, since)) if before.spec == lease.spec => *since,
            _ => now,
        };
        self.observed = Some((lease.clone(), since));
        let (holder, seconds) = (holder(&lease), lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds));
        let duration = Duration::from_secs(seconds.and_then(|seconds| seconds.try_into().ok()).unwrap_or(0));
        if holder == self.identity {
            LeaseDecision::Write(self.renewed(lease, time).into())
        } else if !holder.is_empty() && now < since + duration {
            LeaseDecision::Wait(holder.to_owned())
        } else {
            LeaseDecision::Write(self.acquire(lease, time).into())
        }
    }

    fn written(&mut self, lease: Lease, now: Instant) {
        self.observed = Some((lease, now));
    }

    /// The renewed Lease, if this candidate holds it as far as it has observed.
    fn renew(&self, time: Timestamp) -> Option<Lease> {
        Some(self.renewed(self.own()?.clone(), time))
    }

    /// The Lease without a holder, if this candidate holds it. Whoever reads it acquires it at once.
    fn release(&self, time: Timestamp) -> Option<Lease> {
        let mut lease = self.own()?.clone();
        let spec = lease.spec.get_or_insert_default();
        (spec.holder_identity, spec.lease_duration_seconds) = (Some(String::new()), Some(1));
        (spec.acquire_time, spec.renew_time) = (Some(MicroTime(time)), Some(MicroTime(time)));
        Some(lease)
    }

    /// When this candidate has acquired the Lease, by the time that it has stated.
    fn acquired_at(&self) -> Option<Timestamp> {
        self.own()?.spec.as_ref()?.acquire_time.as_ref().map(|time| time.0)
    }

    fn own(&self) -> Option<&Lease> {
        self.observed.as_ref().map(|(lease, _)| lease).filter(|lease| holder(lease) == self.identity)
    }

    fn acquire(&self, mut lease: Lease, time: Timestamp) -> Lease {
        let time = spoken_until(&lease).map_or(time, |until| time.max(until));
        let was_held = !holder(&lease).is_empty();
        let spec = lease.spec.get_or_insert_default();
        // The first holder of a Lease is no transition.
        let transition = i32::from(was_held || spec.acquire_time.is_some());
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(transition));
        (spec.holder_identity, spec.acquire_time) = (Some(self.identity.clone()), Some(MicroTime(time)));
        self.renewed(lease, time)
    }

    fn renewed(&self, mut lease: Lease, time: Timestamp) -> Lease {
        let spec = lease.spec.get_or_insert_default();
        spec.lease_duration_seconds = Some(self.duration.as_secs().try_into().unwrap_or(i32::MAX));
        spec.renew_time = Some(MicroTime(time));
        lease
    }
}

/// Until when the last holder may have stated times, by its own clock: it leads no longer than the Lease lasts.
fn spoken_until(lease: &Lease) -> Option<Timestamp> {
    let spec = lease.spec.as_ref()?;
    let seconds = spec.lease_duration_seconds.and_then(|seconds| seconds.try_into().ok()).unwrap_or(0);
    spec.renew_time.as_ref()?.0.checked_add(Duration::from_secs(seconds)).ok()
}

/// The holder of a Lease; empty if there is none.
fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}
