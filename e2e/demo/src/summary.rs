//! What the demo measured, as a table and as JSON.

use serde::Serialize;

use jobset_harness::median::median;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Recovery {
    /// From the worker's exit to the last worker's start, by what the workers wrote down.
    pub(super) seconds: f64,
    /// Workers.
    pub(super) pods: usize,
    /// Workers that started in the Pod they had before.
    pub(super) same_uid: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Series {
    seconds: Vec<f64>,
    pods: usize,
    /// The fewest over all recoveries.
    same_uid: usize,
}

impl Series {
    pub(super) fn add(&mut self, recovery: Recovery) {
        let first = self.seconds.is_empty();
        self.same_uid = if first { recovery.same_uid } else { self.same_uid.min(recovery.same_uid) };
        self.pods = recovery.pods;
        // Milliseconds: what the workers' clocks are read to.
        self.seconds.push((recovery.seconds * 1000.0).round() / 1000.0);
    }

    fn median(&self) -> f64 {
        median(self.seconds.iter().copied())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Summary {
    pub(super) in_place: Series,
    pub(super) recreate: Series,
}

impl Summary {
    pub(super) fn json(&self) -> String {
        // Numbers and lists of numbers always serialize.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    pub(super) fn table(&self) -> String {
        let row = |name: &str, series: &Series| {
            let low = series.seconds.iter().copied().fold(f64::INFINITY, f64::min);
            let high = series.seconds.iter().copied().fold(0.0, f64::max);
            format!(
                "{name:<16} {:>8} {:>9.2} s {:>8.2} s {:>8.2} s {:>7} {:>13}\n",
                series.seconds.len(),
                series.median(),
                low,
                high,
                series.pods,
                format!("{} of {}", series.same_uid, series.pods),
            )
        };
        format!(
            "From the worker's exit to the last worker's start, as the workers wrote it down:\n\n\
             {:<16} {:>8} {:>11} {:>10} {:>10} {:>7} {:>13}\n{}{}",
            "strategy",
            "failures",
            "median",
            "shortest",
            "longest",
            "workers",
            "kept its UID",
            row("InPlaceRestart", &self.in_place),
            row("Recreate", &self.recreate),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_reports_the_median_and_the_fewest_pods_kept() {
        let mut series = Series::default();
        for (seconds, same_uid) in [(3.0, 4), (1.0, 3), (2.000_4, 4)] {
            series.add(Recovery { seconds, pods: 4, same_uid });
        }
        assert!((series.median() - 2.0).abs() < 1e-9);
        let json = serde_json::to_value(&series).unwrap();
        assert_eq!(json, serde_json::json!({"seconds": [3.0, 1.0, 2.0], "pods": 4, "same_uid": 3}));
    }
}
