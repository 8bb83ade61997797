//! Counts facts once the status write that they belong to has succeeded.

use std::collections::HashMap;

use jobset_api::{FailurePolicyAction, JobSet};
use k8s_openapi::jiff::Timestamp;
use prometheus::Registry;

use super::clock::{Clock, Measured};
use super::labels;
use super::restarts::Restarts;
use crate::engine::Key;
use crate::plan::Fact;
use crate::shell::error::Error;
use jobset_metrics::remove_series;

/// The metrics, and a clock for each JobSet.
pub(in crate::shell) struct Ledger {
    metrics: Restarts,
    /// Each with the UID of its JobSet: one of the same name that comes later begins anew.
    clocks: HashMap<Key, (Option<String>, Clock)>,
}

impl Ledger {
    pub(in crate::shell) fn register(registry: &Registry) -> Result<Self, Error> {
        let metrics = Restarts::register(registry).map_err(Error::Metrics)?;
        Ok(Self { metrics, clocks: HashMap::new() })
    }

    /// The JobSet is about to be worked on, and stored like this.
    pub(in crate::shell) fn see(&mut self, key: &Key, jobset: &JobSet) {
        if let Some((_, clock)) = self.clocks.get_mut(key).filter(|(uid, _)| *uid == jobset.metadata.uid) {
            clock.see(jobset);
            return;
        }
        self.forget(key);
        self.clocks.insert(key.clone(), (jobset.metadata.uid.clone(), Clock::of(jobset)));
        // A counter that appears with its first event shows no increase. Those of rare events cannot all be there before.
        // Nor could those of each JobSet: thousands of series of nothing.
        let namespace = &key.namespace[..];
        for result in [labels::COMPLETED, labels::FAILED] {
            self.metrics.finished.with_label_values(&[namespace, result]);
        }
        let strategy = labels::strategy(jobset.spec.restart_strategy());
        let action = labels::action(FailurePolicyAction::RestartJobSet);
        self.metrics.begun.with_label_values(&[namespace, strategy, action, "true"]);
        self.metrics.budget_exhausted.with_label_values(&[namespace]);
        self.metrics.downtime.with_label_values(&[namespace]);
    }

    /// The status that the facts belong to was written.
    pub(in crate::shell) fn written(&mut self, key: &Key, facts: &[Fact], now: Timestamp) {
        for fact in facts {
            self.count(key, fact);
            let Some((_, clock)) = self.clocks.get_mut(key) else { continue };
            for measured in clock.take(fact, now) {
                self.metrics.observe(key, measured);
            }
        }
    }

    /// The JobSet is gone.
    pub(in crate::shell) fn forget(&mut self, key: &Key) {
        self.clocks.remove(key);
        // It has one of them at most. A write that was under way when it went may have brought it back.
        let series = [&key.name[..], &key.namespace[..]];
        let _ = self.metrics.failed.remove_label_values(&series);
        let _ = self.metrics.completed.remove_label_values(&series);
    }

    /// The namespace is gone, and with it what was counted there. Not with its last JobSet: the next scrape is to see
    /// what became of that.
    pub(in crate::shell) fn forget_namespace(&self, name: &str) {
        let Restarts { begun, triggers, finished, budget_exhausted, downtime, .. } = &self.metrics;
        for counter in [begun, triggers, finished, budget_exhausted] {
            remove_series(counter, "namespace", name);
        }
        remove_series(downtime, "namespace", name);
    }

    fn count(&self, key: &Key, fact: &Fact) {
        let (name, namespace) = (&key.name[..], &key.namespace[..]);
        let metrics = &self.metrics;
        match fact {
            Fact::RestartBegan { strategy, action, counted, trigger, .. } => {
                let counted = if *counted { "true" } else { "false" };
                let (strategy, action) = (labels::strategy(*strategy), labels::action(*action));
                metrics.begun.with_label_values(&[namespace, strategy, action, counted]).inc();
                let (reason, exit_class) = labels::trigger(*trigger);
                metrics.triggers.with_label_values(&[namespace, reason, exit_class]).inc();
            }
            Fact::PolicyApplied { action, rule } => {
                let rule = labels::rule_index(*rule);
                metrics.policy_actions.with_label_values(&[labels::action(*action), &rule]).inc();
            }
            Fact::Completed => {
                metrics.completed.with_label_values(&[name, namespace]).inc();
                metrics.finished.with_label_values(&[namespace, labels::COMPLETED]).inc();
            }
            Fact::Failed { budget_exhausted } => {
                metrics.failed.with_label_values(&[name, namespace]).inc();
                metrics.finished.with_label_values(&[namespace, labels::FAILED]).inc();
                if *budget_exhausted {
                    metrics.budget_exhausted.with_label_values(&[namespace]).inc();
                }
            }
            Fact::BarrierLifted | Fact::Recovered | Fact::Started => {}
        }
    }
}

impl Restarts {
    fn observe(&self, key: &Key, measured: Measured) {
        match measured {
            Measured::Startup(seconds) => self.startup.observe(seconds),
            Measured::Restart(strategy, outcome, seconds) => {
                self.duration.with_label_values(&[labels::strategy(strategy), outcome.label()]).observe(seconds);
            }
            Measured::Phase(strategy, phase, seconds) => {
                self.phase.with_label_values(&[labels::strategy(strategy), phase.label()]).observe(seconds);
            }
            Measured::Undisturbed(seconds) => self.undisturbed.observe(seconds),
            Measured::Downtime(seconds) => self.downtime.with_label_values(&[&key.namespace]).inc_by(seconds),
        }
    }
}
