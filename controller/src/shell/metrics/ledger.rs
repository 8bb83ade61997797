//! Counts facts once their status is written.

use std::collections::HashMap;

use jobset_api::JobSet;
use jobset_rules::Fact;
use jobset_store::Key;
use k8s_openapi::jiff::Timestamp;
use prometheus::Registry;

use super::clock::Clock;
use super::restarts::Restarts;

/// The metrics, and a clock for each JobSet.
pub(in crate::shell) struct Ledger {
    metrics: Restarts,
    /// Each with the UID of its JobSet. A later JobSet of the same name has a new clock.
    clocks: HashMap<Key, (Option<String>, Clock)>,
}

impl Ledger {
    pub(in crate::shell) fn register(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self { metrics: Restarts::register(registry)?, clocks: HashMap::new() })
    }

    /// A reconciliation of the JobSet begins.
    pub(in crate::shell) fn see(&mut self, key: &Key, jobset: &JobSet) {
        if let Some((_, clock)) = self.clocks.get_mut(key).filter(|(uid, _)| *uid == jobset.metadata.uid) {
            clock.see(jobset);
            return;
        }
        self.forget(key);
        self.clocks.insert(key.clone(), (jobset.metadata.uid.clone(), Clock::of(jobset)));
        self.metrics.begin(key, jobset);
    }

    /// The status was written, and with it these facts are true.
    pub(in crate::shell) fn written(&mut self, key: &Key, facts: &[Fact], now: Timestamp) {
        for fact in facts {
            self.metrics.count(key, fact);
            let measured = self.clocks.get_mut(key).map(|(_, clock)| clock.take(fact, now));
            for measured in measured.into_iter().flatten() {
                self.metrics.observe(key, measured);
            }
        }
    }

    /// So many failed Pods of the JobSet were released.
    pub(in crate::shell) fn released(&self, key: &Key, pods: u32) {
        self.metrics.released(key, pods);
    }

    /// The JobSet is gone.
    pub(in crate::shell) fn forget(&mut self, key: &Key) {
        self.clocks.remove(key);
        self.metrics.forget(key);
    }

    /// The namespace is gone, and its series are removed. They outlive its last JobSet, so that the next scrape shows the end of
    /// that JobSet.
    pub(in crate::shell) fn forget_namespace(&self, name: &str) {
        self.metrics.forget_namespace(name);
    }
}
