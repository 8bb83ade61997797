//! Metrics of the loop: `jobset_reconcile_duration_seconds{result}`, `jobset_workqueue_depth` and `jobset_reconciling`.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntGauge, Registry, exponential_buckets};

use crate::engine::Failure;
use crate::shell::error::Error;

fn label(failure: Option<Failure>) -> &'static str {
    match failure {
        None => "success",
        Some(Failure::Outdated) => "outdated",
        Some(Failure::Transient) => "unavailable",
        Some(Failure::Refused) => "refused",
    }
}

/// The owner's handles.
pub(in crate::shell) struct Reconciliations {
    duration: HistogramVec,
    depth: IntGauge,
    works: IntGauge,
}

impl Reconciliations {
    pub(in crate::shell) fn register(registry: &Registry) -> std::result::Result<Self, Error> {
        let register = || {
            let help = "Duration of passes over one JobSet, from the plan to the last answer, by how they ended: success, outdated (the view was), unavailable (the API server was), refused.";
            let options = HistogramOpts::new("jobset_reconcile_duration_seconds", help)
                .buckets(exponential_buckets(0.001, 2.0, 15)?);
            let duration = HistogramVec::new(options, &["result"])?;
            let depth = IntGauge::new("jobset_workqueue_depth", "JobSets that are due and wait for their turn.")?;
            registry.register(Box::new(duration.clone()))?;
            let help = "1 while this replica leads and has listed all that it goes by, else 0: a leader alone restarts nothing yet.";
            let works = IntGauge::new("jobset_reconciling", help)?;
            registry.register(Box::new(depth.clone()))?;
            registry.register(Box::new(works.clone()))?;
            Ok(Self { duration, depth, works })
        };
        register().map_err(Error::Metrics)
    }

    pub(in crate::shell) fn ended(&self, failure: Option<Failure>, after: Duration) {
        self.duration.with_label_values(&[label(failure)]).observe(after.as_secs_f64());
    }

    pub(in crate::shell) fn works(&self, works: bool) {
        self.works.set(works.into());
    }

    pub(in crate::shell) fn waiting(&self, depth: usize) {
        self.depth.set(depth.try_into().unwrap_or(i64::MAX));
    }
}
