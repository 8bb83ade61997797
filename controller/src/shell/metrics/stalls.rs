//! The metrics of groups and workers that make no progress.

use jobset_metrics::remove_series;
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

use super::registered;

/// Verdicts about stalls.
const BLAMED: &str = "blamed";
const UNKNOWN: &str = "unknown";

pub(super) struct StallCounters {
    stalls: IntCounterVec,
    stragglers: IntCounterVec,
    stalled_jobsets: IntGaugeVec,
}

impl StallCounters {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let counter =
            |name, help, labels: &[&str]| registered(registry, IntCounterVec::new(Opts::new(name, help), labels));
        Ok(Self {
            stalls: counter(
                "jobset_progress_stalls_total",
                "Groups in which no worker made progress; verdict is blamed (one Pod differs from the others) or unknown.",
                &["namespace", "verdict"],
            )?,
            stragglers: counter(
                "jobset_stragglers_total",
                "Workers that made no progress while others did.",
                &["namespace"],
            )?,
            stalled_jobsets: registered(
                registry,
                IntGaugeVec::new(
                    Opts::new(
                        "jobset_stalled_jobsets",
                        "JobSets of the namespace whose condition ProgressStalled is True: no worker makes progress. Only the leader counts them.",
                    ),
                    &["namespace"],
                ),
            )?,
        })
    }

    /// A series that begins with its first event shows no increase.
    pub(super) fn begin(&self, namespace: &str) {
        for verdict in [BLAMED, UNKNOWN] {
            self.stalls.with_label_values(&[namespace, verdict]);
        }
        self.stragglers.with_label_values(&[namespace]);
    }

    pub(super) fn stalled(&self, namespace: &str, is_blamed: bool) {
        self.stalls.with_label_values(&[namespace, if is_blamed { BLAMED } else { UNKNOWN }]).inc();
    }

    pub(super) fn straggled(&self, namespace: &str) {
        self.stragglers.with_label_values(&[namespace]).inc();
    }

    /// Whether a JobSet of the namespace stalled so far, and does now.
    pub(super) fn count_stalled(&self, namespace: &str, did_stall: bool, stalls: bool) {
        self.stalled_jobsets.with_label_values(&[namespace]).add(i64::from(stalls) - i64::from(did_stall));
    }

    pub(super) fn forget_namespace(&self, name: &str) {
        for counter in [&self.stalls, &self.stragglers] {
            remove_series(counter, "namespace", name);
        }
        remove_series(&self.stalled_jobsets, "namespace", name);
    }
}
