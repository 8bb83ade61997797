//! Removes the series of deleted objects.

use std::collections::HashMap;

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};

/// Removes all series with this value of a label. It reads every series of the metric, so do not call it often.
pub fn remove_series<T: MetricVecBuilder>(metric: &MetricVec<T>, label: &str, value: &str) {
    for family in metric.collect() {
        for series in family.get_metric() {
            let labels: HashMap<&str, &str> = series.get_label().iter().map(|it| (it.name(), it.value())).collect();
            if labels.get(label) == Some(&value) {
                // Another thread may have removed the series already.
                let _ = metric.remove(&labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{IntCounterVec, Opts};

    use super::*;

    #[test]
    fn remove_series_removes_only_series_with_label_value() {
        let counter = IntCounterVec::new(Opts::new("a", "b"), &["namespace", "reason"]).unwrap();
        for labels in [["x", "x"], ["x", "y"], ["y", "x"]] {
            counter.with_label_values(&labels).inc();
        }
        remove_series(&counter, "namespace", "x");
        let left = counter.collect();
        let left: Vec<_> = left[0].get_metric().iter().map(|it| it.get_label()[0].value().to_owned()).collect();
        assert_eq!(left, ["y"]);
    }
}
