//! Counts facts once their status is written.

use std::collections::HashMap;

use jobset_api::{JobSet, JobSetStatus, Ledger as StatusLedger, LedgerBucket, LedgerTimes, conditions};
use jobset_rules::Fact;
use jobset_store::Key;
use k8s_openapi::jiff::Timestamp;
use prometheus::Registry;

use super::clock::Clock;
use super::restarts::{Present, Restarts};

/// The metrics, and what they need to know of each JobSet.
pub(in crate::shell) struct Ledger {
    metrics: Restarts,
    jobsets: HashMap<Key, Entry>,
}

/// A JobSet as of its last reconciliation.
struct Entry {
    /// A later JobSet of the same name has another one, and a new clock.
    uid: Option<String>,
    clock: Clock,
    present: Present,
    /// Its ledger, if it has one, and the sums that are counted.
    ledger: Option<StatusLedger>,
    times: LedgerTimes,
    /// When it was deleted: nobody writes its status after that.
    deleted: Option<Timestamp>,
}

impl Ledger {
    pub(in crate::shell) fn register(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self { metrics: Restarts::register(registry)?, jobsets: HashMap::new() })
    }

    /// A reconciliation of the JobSet begins.
    pub(in crate::shell) fn see(&mut self, key: &Key, jobset: &JobSet) {
        let present = present(jobset);
        if let Some(entry) = self.jobsets.get_mut(key).filter(|it| it.uid == jobset.metadata.uid) {
            entry.clock.see(jobset);
            let before = std::mem::replace(&mut entry.present, present);
            self.metrics.count_present(key, before, present);
            (entry.ledger, entry.deleted) = (ledger(jobset).cloned(), deleted(jobset));
            entry.count(&self.metrics, key, None);
            return;
        }
        // The one before was gone when this one was created.
        self.forget(key, jobset.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |created| created.0));
        let (ledger, deleted) = (ledger(jobset).cloned(), deleted(jobset));
        // What a leader finds there was counted by another one.
        let times = ledger.as_ref().map(|ledger| times(ledger, deleted)).unwrap_or_default();
        let uid = jobset.metadata.uid.clone();
        let entry = Entry { uid, clock: Clock::of(jobset), present, ledger, times, deleted };
        self.jobsets.insert(key.clone(), entry);
        self.metrics.begin(key, jobset);
        self.metrics.count_present(key, Present::default(), present);
    }

    /// The status was written, and with it these facts are true.
    pub(in crate::shell) fn written(&mut self, key: &Key, facts: &[Fact], now: Timestamp) {
        for fact in facts {
            self.metrics.count(key, fact);
            let measured = self.jobsets.get_mut(key).map(|it| it.clock.take(fact, now));
            for measured in measured.into_iter().flatten() {
                self.metrics.observe(key, measured);
            }
        }
    }

    /// So many failed Pods of the JobSet were released.
    pub(in crate::shell) fn released(&self, key: &Key, pods: u32) {
        self.metrics.released(key, pods);
    }

    /// The JobSet is gone, at this time at the latest.
    pub(in crate::shell) fn forget(&mut self, key: &Key, now: Timestamp) {
        if let Some(mut entry) = self.jobsets.remove(key) {
            entry.count(&self.metrics, key, Some(now));
            self.metrics.count_present(key, entry.present, Present::default());
        }
        self.metrics.forget(key);
    }

    /// The namespace is gone, and its series are removed. They outlive its last JobSet, so that the next scrape shows the end of
    /// that JobSet.
    pub(in crate::shell) fn forget_namespace(&mut self, name: &str) {
        // The end of a JobSet that is noticed later must not begin a series again.
        self.jobsets.retain(|key, _| key.namespace != name);
        self.metrics.forget_namespace(name);
    }
}

fn present(jobset: &JobSet) -> Present {
    let is_finished = jobset.status.as_ref().is_some_and(JobSetStatus::is_finished);
    let is_active = !is_finished && !jobset.spec.is_suspended();
    let is_true = |type_| jobset.status.as_ref().is_some_and(|it| conditions::is_true(&it.conditions, type_));
    Present { is_active, stalls: is_active && is_true(conditions::PROGRESS_STALLED) }
}

fn ledger(jobset: &JobSet) -> Option<&StatusLedger> {
    jobset.status.as_ref()?.ledger.as_ref()
}

fn deleted(jobset: &JobSet) -> Option<Timestamp> {
    jobset.metadata.deletion_timestamp.as_ref().map(|deleted| deleted.0)
}

/// The sums of a ledger; of a JobSet that has ended like this, with the time since they were written.
fn times(ledger: &StatusLedger, end: Option<Timestamp>) -> LedgerTimes {
    end.map_or_else(|| ledger.milliseconds.clone(), |end| ledger.at(end))
}

impl Entry {
    /// Counts the time that is not counted yet.
    fn count(&mut self, metrics: &Restarts, key: &Key, gone: Option<Timestamp>) {
        let Some(ledger) = &self.ledger else { return };
        let times = times(ledger, self.deleted.or(gone));
        let before = std::mem::replace(&mut self.times, times.clone());
        for bucket in LedgerBucket::TIMED {
            // A clock that has gone back takes from a sum. A counter never falls.
            metrics.spent(key, bucket, times.of(bucket).saturating_sub(before.of(bucket)).max(0));
        }
    }
}
