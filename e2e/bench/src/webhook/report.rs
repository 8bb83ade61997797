//! The result: as JSON, and for a person beside what is to be reached. Pure but for the file.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use super::number;
use crate::report::{megabytes, write_json};
use crate::targets::Targets;

/// Most CPU time of one review, in milliseconds.
const CPU_MS: f64 = 0.35;
/// Longest time within which 99 of 100 reviews have to be answered, in milliseconds.
const P99_MS: f64 = 5.0;
/// Most resident memory, in MB.
const RSS_MB: f64 = 24.0;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) mutate: Figures,
    pub(super) validate: Figures,
    /// Peak of the service's resident memory (`VmHWM`), from its start to the end of these loads.
    pub(super) peak_rss_kib: u64,
    /// The JobSet as its user sends it.
    pub(super) jobset_bytes: usize,
    /// The same for a JobSet that restarts in place.
    pub(super) in_place: InPlace,
    /// Reviews from which the CPU time of one was found, of each kind.
    pub(super) reviews: usize,
    /// How long 500 reviews per second were sent, of each kind.
    pub(super) paced_seconds: f64,
    /// Connections that were kept.
    pub(super) connections: usize,
    /// CPUs of this machine.
    pub(super) cpus: usize,
}

/// Reviews of one webhook.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    #[serde(flatten)]
    pub(super) costs: Costs,
    /// Time within which half of the reviews were answered, at 500 per second.
    pub(super) p50_ms_at_500: f64,
    /// Time within which 99 of 100 were.
    pub(super) p99_ms_at_500: f64,
    /// Time within which all were.
    pub(super) max_ms_at_500: f64,
    /// CPU time of one review at that rate: the service wakes up for nearly each of them.
    pub(super) cpu_ms_per_review_at_500: f64,
    /// CPUs that were meanwhile busy with neither the service nor the load.
    pub(super) others_cpu_share_at_500: f64,
}

/// Cost of the reviews of one webhook, sent one after the other on each connection.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Costs {
    /// CPU time of the service for one review, in user and in kernel mode.
    pub(super) cpu_ms_per_review: f64,
    /// Reviews answered in a second.
    pub(super) reviews_per_second: f64,
    /// The AdmissionReview, with the JobSet as the API server has it: managedFields are in it.
    pub(super) review_bytes: usize,
    /// The answer.
    pub(super) answer_bytes: usize,
    /// CPUs that were meanwhile busy with neither the service nor the load.
    pub(super) others_cpu_share: f64,
}

/// Reviews of a JobSet that restarts in place.
#[derive(Clone, Debug, Serialize)]
pub(super) struct InPlace {
    pub(super) mutate: Costs,
    pub(super) validate: Costs,
    /// Peak of the service's resident memory to the end.
    pub(super) peak_rss_kib: u64,
    /// The JobSet as its user sends it.
    pub(super) jobset_bytes: usize,
}

impl Report {
    /// Writes `webhook.json`, and gives its path.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join("webhook.json");
        write_json(self, &path)?;
        Ok(path)
    }

    /// One line for each figure that is to be reached, and some that explain them.
    pub(super) fn table(&self) -> String {
        let mut targets = Targets::new("review of a JobSet of 42 kB");
        let mut line =
            |what: &str, value: f64, target: Option<f64>, unit: &str| targets.line(what, value, target, unit);
        for (name, figures) in [("mutate", &self.mutate), ("validate", &self.validate)] {
            line(&format!("{name}: CPU of a review"), figures.costs.cpu_ms_per_review, Some(CPU_MS), "ms");
            line(&format!("{name}: the same at 500 per second"), figures.cpu_ms_per_review_at_500, None, "ms");
            line(&format!("{name}: p50 at 500 per second"), figures.p50_ms_at_500, None, "ms");
            line(&format!("{name}: p99 at 500 per second"), figures.p99_ms_at_500, Some(P99_MS), "ms");
            line(&format!("{name}: longest"), figures.max_ms_at_500, None, "ms");
        }
        line("resident memory, peak", megabytes(number(self.peak_rss_kib) * 1024.0), Some(RSS_MB), "MB");
        for (name, costs) in [("mutate", &self.in_place.mutate), ("validate", &self.in_place.validate)] {
            line(&format!("{name} in place: CPU of a review"), costs.cpu_ms_per_review, Some(CPU_MS), "ms");
        }
        let others = [
            self.mutate.costs.others_cpu_share,
            self.mutate.others_cpu_share_at_500,
            self.validate.costs.others_cpu_share,
            self.validate.others_cpu_share_at_500,
        ];
        let others = others.into_iter().fold(0.0, f64::max);
        targets.explained(&format!(
            "The JobSet has {} bytes as it is sent (in place: {}), its reviews have {} (mutate) and {} (validate); of {} \
             CPUs, up to {others:.2} were busy with something else.",
            self.jobset_bytes,
            self.in_place.jobset_bytes,
            self.mutate.costs.review_bytes,
            self.validate.costs.review_bytes,
            self.cpus,
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn report() -> Report {
        let costs = |cpu_ms_per_review| Costs {
            cpu_ms_per_review,
            reviews_per_second: 2000.0,
            review_bytes: 70_000,
            answer_bytes: 100,
            others_cpu_share: 0.1,
        };
        let figures = |cpu, p99| Figures {
            costs: costs(cpu),
            p50_ms_at_500: 0.5,
            p99_ms_at_500: p99,
            max_ms_at_500: 9.0,
            cpu_ms_per_review_at_500: cpu,
            others_cpu_share_at_500: 0.25,
        };
        Report {
            mutate: figures(0.3, 6.0),
            validate: figures(0.36, 1.0),
            peak_rss_kib: 20_000,
            jobset_bytes: 41_900,
            in_place: InPlace { mutate: costs(0.3), validate: costs(0.3), peak_rss_kib: 21_000, jobset_bytes: 41_800 },
            reviews: 5000,
            paced_seconds: 20.0,
            connections: 3,
            cpus: 2,
        }
    }

    #[test]
    fn result_has_the_keys_that_others_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = report().write(folder.path()).unwrap();
        assert_eq!(path.file_name().unwrap(), "webhook.json");
        let written: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(
            (&written["mutate"]["cpu_ms_per_review"], &written["mutate"]["p99_ms_at_500"]),
            (&0.3.into(), &6.0.into())
        );
        assert_eq!(
            (&written["validate"]["cpu_ms_per_review"], &written["validate"]["p99_ms_at_500"]),
            (&0.36.into(), &1.0.into())
        );
        assert_eq!(written["peak_rss_kib"], 20_000);
    }

    #[test]
    fn table_says_what_is_met_and_what_is_missed() {
        let table = report().table();
        let lines: Vec<String> =
            table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "mutate: CPU of a review 0.3 ms 0.35 ms met",
            "mutate: p99 at 500 per second 6 ms 5 ms MISSED",
            "validate: CPU of a review 0.36 ms 0.35 ms MISSED",
            "resident memory, peak 20.48 MB 24 MB met",
        ] {
            assert!(lines.iter().any(|it| it == line), "no line {line:?} in\n{table}");
        }
        assert!(table.contains("up to 0.25 were busy"), "{table}");
    }
}
