//! Metrics of the loop: `jobset_reconcile_duration_seconds{result}`, `jobset_workqueue_depth`,
//! `jobset_workqueue_oldest_urgent_seconds`, `jobset_slow_requests`, `jobset_internal_errors_total` and `jobset_reconciling`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jobset_engine::Failure;
use jobset_program::lock;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, HistogramOpts, HistogramVec, IntCounter, IntGauge, Registry, exponential_buckets};

use super::registered;

/// The metrics of the loop.
pub(in crate::shell) struct Reconciliations {
    duration: HistogramVec,
    depth: IntGauge,
    oldest_urgent: Age,
    slow: IntGauge,
    internal_errors: IntCounter,
    works: IntGauge,
}

/// A gauge of the seconds since an instant, 0 without one. A scrape computes it, so that it grows also while the loop stands
/// still.
#[derive(Clone)]
struct Age {
    gauge: Gauge,
    since: Arc<Mutex<Option<Instant>>>,
}

impl Age {
    fn new(name: &str, help: &str) -> prometheus::Result<Self> {
        Ok(Self { gauge: Gauge::new(name, help)?, since: Arc::default() })
    }

    fn set(&self, since: Option<Instant>) {
        *lock(&self.since) = since;
    }
}

impl Collector for Age {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let since = *lock(&self.since);
        self.gauge.set(since.map_or(0.0, |since| since.elapsed().as_secs_f64()));
        self.gauge.collect()
    }
}

impl Reconciliations {
    pub(in crate::shell) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let help = "Duration of one reconciliation of a JobSet, from the plan to the last answer, by result: success, outdated (the observed state was), unavailable (the API server was), refused.";
        let options = HistogramOpts::new("jobset_reconcile_duration_seconds", help);
        let duration = HistogramVec::new(options.buckets(exponential_buckets(0.001, 2.0, 15)?), &["result"]);
        let depth = IntGauge::new("jobset_workqueue_depth", "JobSets that are due and wait for their turn.");
        let help = "Longest time that a JobSet has waited with urgent work; 0 if none waits.";
        let oldest_urgent = Age::new("jobset_workqueue_oldest_urgent_seconds", help);
        let help = "Requests to change objects that have had no answer for a second; they hold up no other JobSet, and at most 96 are waited for.";
        let slow = IntGauge::new("jobset_slow_requests", help);
        let help = "Panics of the controller that were caught. Each costs one JobSet its reconciliations.";
        let internal_errors = IntCounter::new("jobset_internal_errors_total", help);
        let help = "1 while this replica leads and has listed all that it goes by, else 0: a leader alone restarts nothing yet.";
        let works = IntGauge::new("jobset_reconciling", help);
        Ok(Self {
            duration: registered(registry, duration)?,
            depth: registered(registry, depth)?,
            oldest_urgent: registered(registry, oldest_urgent)?,
            slow: registered(registry, slow)?,
            internal_errors: registered(registry, internal_errors)?,
            works: registered(registry, works)?,
        })
    }

    pub(in crate::shell) fn ended(&self, failure: Option<Failure>, after: Duration) {
        let result = match failure {
            None => "success",
            Some(Failure::Outdated) => "outdated",
            Some(Failure::Transient) => "unavailable",
            Some(Failure::Refused) => "refused",
        };
        self.duration.with_label_values(&[result]).observe(after.as_secs_f64());
    }

    pub(in crate::shell) fn works(&self, works: bool) {
        self.works.set(works.into());
    }

    /// Number of JobSets that wait, and since when one of them waits with urgent work.
    pub(in crate::shell) fn waiting(&self, depth: usize, oldest_urgent: Option<Instant>) {
        self.depth.set(depth.try_into().unwrap_or(i64::MAX));
        self.oldest_urgent.set(oldest_urgent);
    }

    pub(in crate::shell) fn slow_requests(&self, requests: usize) {
        self.slow.set(requests.try_into().unwrap_or(i64::MAX));
    }

    /// Number of panics since the start.
    pub(in crate::shell) fn internal_errors(&self, total: u64) {
        self.internal_errors.inc_by(total.saturating_sub(self.internal_errors.get()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(registry: &Registry, name: &str) -> f64 {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let metric = &family.get_metric()[0];
        metric.get_gauge().get_value() + metric.get_counter().get_value()
    }

    #[test]
    fn oldest_urgent_work_ages_while_loop_stands_still() {
        let registry = Registry::new();
        let metrics = Reconciliations::register(&registry).unwrap();
        let age = || value(&registry, "jobset_workqueue_oldest_urgent_seconds");
        metrics.waiting(3, Instant::now().checked_sub(Duration::from_secs(40)));
        let first = age();
        assert!((40.0..60.0).contains(&first), "{first}");
        std::thread::sleep(Duration::from_millis(2));
        assert!(age() > first);
        metrics.waiting(2, None);
        assert_eq!((age(), value(&registry, "jobset_workqueue_depth")), (0.0, 2.0));
    }

    #[test]
    fn internal_errors_are_counted_once_each() {
        let registry = Registry::new();
        let metrics = Reconciliations::register(&registry).unwrap();
        for total in [0, 1, 1, 3] {
            metrics.internal_errors(total);
        }
        assert!((value(&registry, "jobset_internal_errors_total") - 3.0).abs() < f64::EPSILON);
    }
}
