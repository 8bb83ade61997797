//! Counts facts once their status is written.

use std::collections::HashMap;

use jobset_api::{FailurePolicyAction, JobSet};
use jobset_metrics::remove_series;
use jobset_rules::Fact;
use jobset_store::Key;
use k8s_openapi::jiff::Timestamp;
use prometheus::Registry;

use super::clock::{Clock, Measured};
use super::labels;
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
        // A series that begins with its first event shows no increase, so the common ones begin with 0. Rare ones do not, nor do
        // those of a single JobSet: they would be thousands of zeros.
        let namespace = &key.namespace[..];
        for result in [labels::COMPLETED, labels::FAILED] {
            self.metrics.finished.with_label_values(&[namespace, result]);
        }
        let strategy = labels::strategy(jobset.spec.restart_strategy());
        let action = labels::action(FailurePolicyAction::RestartJobSet);
        self.metrics.begun.with_label_values(&[namespace, strategy, action, "true"]);
        self.metrics.budget_exhausted.with_label_values(&[namespace]);
        self.metrics.backoffs.with_label_values(&[namespace]);
        self.metrics.released.with_label_values(&[namespace]);
        self.metrics.downtime.with_label_values(&[namespace]);
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
        self.metrics.released.with_label_values(&[&key.namespace]).inc_by(pods.into());
    }

    /// The JobSet is gone.
    pub(in crate::shell) fn forget(&mut self, key: &Key) {
        self.clocks.remove(key);
        // The JobSet has few of them. A write that was under way at its deletion may have created one again.
        let series = [&key.name[..], &key.namespace[..]];
        let Restarts { failed, completed, deadline_exceeded, .. } = &self.metrics;
        for counter in [failed, completed, deadline_exceeded] {
            let _ = counter.remove_label_values(&series);
        }
    }

    /// The namespace is gone, and its series are removed. They outlive its last JobSet, so that the next scrape shows the end of
    /// that JobSet.
    pub(in crate::shell) fn forget_namespace(&self, name: &str) {
        let Restarts { begun, triggers, backoffs, finished, budget_exhausted, released, downtime, .. } = &self.metrics;
        for counter in [begun, triggers, backoffs, finished, budget_exhausted, released] {
            remove_series(counter, "namespace", name);
        }
        remove_series(downtime, "namespace", name);
    }
}

impl Restarts {
    fn count(&self, key: &Key, fact: &Fact) {
        let (name, namespace) = (&key.name[..], &key.namespace[..]);
        match fact {
            Fact::RestartBegan { strategy, action, counted, trigger, .. } => {
                let counted = if *counted { "true" } else { "false" };
                let (strategy, action) = (labels::strategy(*strategy), labels::action(*action));
                self.begun.with_label_values(&[namespace, strategy, action, counted]).inc();
                let (reason, exit_class) = labels::trigger(*trigger);
                self.triggers.with_label_values(&[namespace, reason, exit_class]).inc();
            }
            Fact::PolicyApplied { action, rule } => {
                let rule = labels::rule_index(*rule);
                self.policy_actions.with_label_values(&[labels::action(*action), &rule]).inc();
            }
            Fact::DeadlineExceeded => self.deadline_exceeded.with_label_values(&[name, namespace]).inc(),
            Fact::Completed => {
                self.completed.with_label_values(&[name, namespace]).inc();
                self.finished.with_label_values(&[namespace, labels::COMPLETED]).inc();
            }
            Fact::Failed { budget_exhausted } => {
                self.failed.with_label_values(&[name, namespace]).inc();
                self.finished.with_label_values(&[namespace, labels::FAILED]).inc();
                if *budget_exhausted {
                    self.budget_exhausted.with_label_values(&[namespace]).inc();
                }
            }
            Fact::BackedOff => self.backoffs.with_label_values(&[namespace]).inc(),
            Fact::RestartRecreates { .. } | Fact::BarrierLifted | Fact::Recovered | Fact::Started => {}
        }
    }

    fn observe(&self, key: &Key, measured: Measured) {
        match measured {
            Measured::Startup(seconds) => self.startup.observe(seconds),
            Measured::Restart(strategy, result, seconds) => {
                self.duration.with_label_values(&[labels::strategy(strategy), result]).observe(seconds);
                self.downtime.with_label_values(&[&key.namespace]).inc_by(seconds);
            }
            Measured::Phase(strategy, phase, seconds) => {
                self.phase.with_label_values(&[labels::strategy(strategy), phase]).observe(seconds);
            }
            Measured::Undisturbed(seconds) => self.undisturbed.observe(seconds),
        }
    }
}
