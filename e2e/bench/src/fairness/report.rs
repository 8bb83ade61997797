//! The figures, and their table beside what they must be at most. Pure.

use jobset_harness::median::median;
use serde::Serialize;

use crate::report::{Report, Table, number, rounded};

/// By how many seconds the median, and the longest, may exceed those of an idle cluster.
const MEDIAN_MORE: f64 = 0.5;
const LONGEST_MORE: f64 = 2.0;
/// The memory limit of the controller, in MB.
const CONTROLLER_MB: f64 = 2048.0;
/// Jobs of the other namespace that exist before the part in which they stand begins.
const FOREIGN_JOBS: f64 = 100_000.0;
/// The least part of the compared controller's rate.
const LEAST_RATE: f64 = 0.8;

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct FairnessFigures {
    /// From a worker's exit to the last worker's start: while nothing else happens,
    pub(super) idle_seconds: Vec<f64>,
    /// beside hostile JobSets of another namespace,
    pub(super) hostile_seconds: Vec<f64>,
    /// while another namespace creates Jobs,
    pub(super) creating_seconds: Vec<f64>,
    /// and while these Jobs stand.
    pub(super) standing_seconds: Vec<f64>,
    /// Number of the hostile JobSets, and the most memory that a controller has taken up to their end.
    pub(super) hostile_jobsets: usize,
    pub(super) controllers_peak_mb: f64,
    /// Jobs of the other namespace in the last part.
    pub(super) foreign_jobs_created: usize,
    /// Creations a second while nothing is urgent.
    pub(super) bulk_jobs_per_second: f64,
    /// The same of the other controller, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compared_jobs_per_second: Option<f64>,
}

pub(super) fn summary(report: &Report<FairnessFigures>) -> String {
    let figures = &report.figures;
    let of = |seconds: &[f64]| {
        let middle = rounded(median(seconds.iter().copied()), 1e3);
        (middle, seconds.iter().copied().fold(f64::NAN, f64::max))
    };
    let mut table = Table::new(&["4 supervised workers, exit to last start", "measured", "target"]);
    let (idle, longest_idle) = of(&figures.idle_seconds);
    table.figure("idle: median", idle, None, "s");
    table.figure("idle: longest", longest_idle, None, "s");
    let hostile = ("hostile JobSets", &figures.hostile_seconds);
    let others = [hostile, ("Jobs are created", &figures.creating_seconds), ("Jobs stand", &figures.standing_seconds)];
    for (what, seconds) in others.into_iter().filter(|(_, seconds)| !seconds.is_empty()) {
        let (middle, longest) = of(seconds);
        table.figure(&format!("{what}: median"), middle, Some(rounded(idle + MEDIAN_MORE, 1e3)), "s");
        table.figure(&format!("{what}: longest"), longest, Some(rounded(longest_idle + LONGEST_MORE, 1e3)), "s");
    }
    if figures.hostile_jobsets > 0 {
        table.line(&["hostile JobSets that are stored".to_owned(), figures.hostile_jobsets.to_string(), String::new()]);
        table.figure("controller's memory, peak", figures.controllers_peak_mb, Some(CONTROLLER_MB), "MB");
    }
    if figures.foreign_jobs_created > 0 || figures.bulk_jobs_per_second > 0.0 {
        let mut at_least = |what: &str, value: f64, least: Option<f64>| {
            let target =
                least.map(|least| format!("at least {least}\t{}", if value >= least { "met" } else { "MISSED" }));
            table.line(&[what.to_owned(), value.to_string(), target.unwrap_or_default()]);
        };
        at_least("foreign Jobs", number(figures.foreign_jobs_created), Some(FOREIGN_JOBS));
        let compared = figures.compared_jobs_per_second;
        let least = compared.map(|rate| rounded(rate * LEAST_RATE, 1e1));
        at_least("Jobs a second, nothing urgent", figures.bulk_jobs_per_second, least);
        if let Some(rate) = compared {
            at_least("the same, compared controller", rate, None);
        }
    }
    format!("{table}The controller's build is {}.", report.build)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::tests::lines;

    fn report(compared_jobs_per_second: Option<f64>) -> Report<FairnessFigures> {
        let figures = FairnessFigures {
            idle_seconds: vec![0.16, 0.2, 0.18],
            hostile_seconds: vec![0.2, 0.3, 0.4],
            hostile_jobsets: 200,
            controllers_peak_mb: 600.5,
            creating_seconds: vec![0.3, 0.9, 0.68],
            standing_seconds: vec![0.2, 2.3, 0.69],
            foreign_jobs_created: 104_000,
            bulk_jobs_per_second: 400.0,
            compared_jobs_per_second,
        };
        Report { figures, build: "release (thin LTO)", cpus: 2 }
    }

    #[test]
    fn result_has_the_keys_that_others_read() {
        let mut written = serde_json::to_value(report(None)).unwrap();
        for of_machine in ["build", "cpus"] {
            written.as_object_mut().unwrap().remove(of_machine).unwrap();
        }
        let expected = json!({
            "idle_seconds": [0.16, 0.2, 0.18], "hostile_seconds": [0.2, 0.3, 0.4], "hostile_jobsets": 200,
            "controllers_peak_mb": 600.5, "creating_seconds": [0.3, 0.9, 0.68], "standing_seconds": [0.2, 2.3, 0.69],
            "foreign_jobs_created": 104_000, "bulk_jobs_per_second": 400.0,
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn summary_says_which_targets_are_met_and_missed() {
        let expected = [
            "4 supervised workers, exit to last start measured target",
            "idle: median 0.18 s",
            "idle: longest 0.2 s",
            "hostile JobSets: median 0.3 s 0.68 s met",
            "hostile JobSets: longest 0.4 s 2.2 s met",
            "Jobs are created: median 0.68 s 0.68 s met",
            "Jobs are created: longest 0.9 s 2.2 s met",
            "Jobs stand: median 0.69 s 0.68 s MISSED",
            "Jobs stand: longest 2.3 s 2.2 s MISSED",
            "hostile JobSets that are stored 200",
            "controller's memory, peak 600.5 MB 2048 MB met",
            "foreign Jobs 104000 at least 100000 met",
            "Jobs a second, nothing urgent 400 at least 408 MISSED",
            "the same, compared controller 510",
            "The controller's build is release (thin LTO).",
        ];
        assert_eq!(lines(&summary(&report(Some(510.0)))), expected);
        assert!(!summary(&report(None)).contains("compared"));
    }
}
