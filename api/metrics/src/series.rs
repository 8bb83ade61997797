//! The end of series whose object is gone.

use std::collections::HashMap;

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};

/// Removes all series that have this value of a label. It looks at every series: not for what happens often.
pub fn remove_series<T: MetricVecBuilder>(metric: &MetricVec<T>, label: &str, value: &str) {
    for family in metric.collect() {
        for series in family.get_metric() {
            let labels: HashMap<&str, &str> = series.get_label().iter().map(|it| (it.name(), it.value())).collect();
            if labels.get(label) == Some(&value) {
                // Somebody else may have been faster.
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
    fn only_series_with_that_value_of_that_label_go() {
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
