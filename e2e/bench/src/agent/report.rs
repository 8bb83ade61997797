//! The result: as JSON, and for a person beside what is to be reached. Pure but for the file.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Serialize, Serializer};

use super::footprint::Footprint;
use super::phases::Phases;
use crate::report::{megabytes, number, rounded, write_json};
use crate::targets::Targets;
use jobset_harness::median::median;

/// Most resident memory of an agent, in MB.
const RSS_MB: f64 = 5.0;
/// Largest binary, in MB.
const BINARY_MB: f64 = 6.0;
/// Threads of an agent.
const THREADS: f64 = 1.0;
/// Longest time from an agent's start to its first report, in milliseconds.
const FIRST_PATCH_MS: f64 = 60.0;
/// Most requests of one agent for each restart.
const SIDECAR_REQUESTS: f64 = 2.0;
const SUPERVISOR_REQUESTS: f64 = 1.0;
/// Longest time from a worker's exit to the last worker's start, in seconds; of workers that end on SIGTERM.
const SIDECAR_SECONDS: f64 = 2.5;
const SUPERVISOR_SECONDS: f64 = 0.3;
/// Longest time that failures in a row take, in seconds.
const ROW_SECONDS: f64 = 60.0;
/// By how much a restart among failures in a row may exceed the longest of those before. A kubelet that backs off waits
/// for ten seconds, then twenty.
const ROW_GROWTH: f64 = 1.5;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// The agents after all restarts; the most that any took.
    #[serde(flatten)]
    pub(super) footprint: Footprint,
    /// Size of the agent's binary.
    pub(super) binary_bytes: u64,
    /// Median of `first_patches_ms`.
    pub(super) first_patch_ms: f64,
    /// From the agent's start to the answer to its first report, of one agent after the other.
    pub(super) first_patches_ms: Vec<f64>,
    pub(super) sidecar: Series,
    /// Workers that stay alive on SIGTERM: the kubelet kills each after two seconds.
    pub(super) sidecar_ignoring_sigterm: Series,
    pub(super) supervisor: Series,
    /// The agent kills such workers when the default of `STOP_GRACE_SECONDS` is over, two seconds.
    pub(super) supervisor_ignoring_sigterm: Series,
    pub(super) recreate: Series,
    pub(super) in_a_row: InARow,
    /// CPUs of this machine.
    pub(super) cpus: usize,
}

/// Restarts of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Series(pub(super) Vec<Restart>);

/// One restart.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Restart {
    /// From the worker's exit to the last worker's start, as they wrote it down.
    pub(super) seconds: f64,
    /// The most requests that one agent made until the next failure.
    pub(super) requests: usize,
    /// Where the time went, of sidecars.
    pub(super) phases: Option<Phases>,
}

/// Failures of the same worker, each as soon as all ran again, after the series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct InARow {
    pub(super) sidecar: Row,
    pub(super) supervisor: Row,
}

/// Failures in a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    /// As those of [`Restart`].
    pub(super) seconds: Vec<f64>,
    /// From the first worker's exit to the last worker's start.
    pub(super) within_seconds: f64,
}

impl Series {
    fn seconds(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|restart| restart.seconds)
    }

    fn median(&self) -> f64 {
        rounded(median(self.seconds()), 1e3)
    }

    fn longest(&self) -> f64 {
        self.seconds().fold(0.0, f64::max)
    }

    /// The most requests that one agent made for one restart.
    fn requests(&self) -> f64 {
        number(self.0.iter().map(|restart| restart.requests).max().unwrap_or(0))
    }

    /// The medians in words.
    pub(super) fn summary(&self) -> String {
        let phases = self.phases().into_iter().map(|(name, seconds)| format!(", {name} {seconds} s"));
        format!("{} s{}", self.median(), phases.collect::<String>())
    }

    /// Names of the phases, and the median of each.
    fn phases(&self) -> Vec<(&'static str, f64)> {
        let all: Vec<_> = self.0.iter().filter_map(|restart| restart.phases).map(|phases| phases.named()).collect();
        let of = |index: usize| rounded(median(all.iter().map(|phases| phases[index].1)), 1e3);
        let names = all.first().into_iter().flatten().map(|(name, _)| *name);
        names.enumerate().map(|(index, name)| (name, of(index))).collect()
    }
}

impl Serialize for Series {
    /// By figure, and not by restart: `seconds` is a list.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Lists {
            seconds: Vec<f64>,
            median: f64,
            requests: Vec<usize>,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            phases: Vec<Phases>,
        }
        Lists {
            seconds: self.seconds().collect(),
            median: self.median(),
            requests: self.0.iter().map(|restart| restart.requests).collect(),
            phases: self.0.iter().filter_map(|restart| restart.phases).collect(),
        }
        .serialize(serializer)
    }
}

impl Row {
    /// The longest restart as a multiple of the longest one of the series before.
    fn growth(&self, before: &Series) -> f64 {
        rounded(self.seconds.iter().copied().fold(0.0, f64::max) / before.longest(), 100.0)
    }
}

impl Report {
    /// Writes `agent.json`, and gives its path.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join("agent.json");
        write_json(self, &path)?;
        Ok(path)
    }

    /// One line for each figure that is to be reached, and some that explain them.
    pub(super) fn table(&self) -> String {
        let mut targets = Targets::new("agent, 4 workers on 2 nodes");
        let mut line =
            |what: &str, value: f64, target: Option<f64>, unit: &str| targets.line(what, value, target, unit);
        let memory = |kib: u64| megabytes(number(kib) * 1024.0);
        line("resident memory", memory(self.footprint.rss_kib), Some(RSS_MB), "MB");
        line("its peak", memory(self.footprint.peak_rss_kib), Some(RSS_MB), "MB");
        line("binary", megabytes(number(self.binary_bytes)), Some(BINARY_MB), "MB");
        line("threads", number(self.footprint.threads), Some(THREADS), "");
        line("start to first report", self.first_patch_ms, Some(FIRST_PATCH_MS), "ms");
        line("sidecar: requests per restart", self.sidecar.requests(), Some(SIDECAR_REQUESTS), "");
        line("supervisor: requests per restart", self.supervisor.requests(), Some(SUPERVISOR_REQUESTS), "");
        let restarts = [
            ("sidecar", &self.sidecar, Some(SIDECAR_SECONDS)),
            ("sidecar, SIGTERM ignored", &self.sidecar_ignoring_sigterm, None),
            ("supervisor", &self.supervisor, Some(SUPERVISOR_SECONDS)),
            ("supervisor, SIGTERM ignored", &self.supervisor_ignoring_sigterm, None),
            ("Recreate", &self.recreate, None),
        ];
        for (name, series, target) in restarts {
            line(&format!("{name}: exit to last start"), series.median(), target, "s");
            line(&format!("{name}: longest"), series.longest(), None, "s");
        }
        let rows = [
            ("sidecar", &self.in_a_row.sidecar, &self.sidecar),
            ("supervisor", &self.in_a_row.supervisor, &self.supervisor),
        ];
        for (name, row, before) in rows {
            let failures = row.seconds.len();
            line(&format!("{name}: {failures} failures in a row"), row.within_seconds, Some(ROW_SECONDS), "s");
            line(&format!("{name}: growth of the longest"), row.growth(before), Some(ROW_GROWTH), "");
        }
        targets.explained(&format!(
            "Medians of {} restarts. Where a sidecar's time goes: {}; if SIGTERM is ignored: {}.",
            self.sidecar.0.len(),
            self.sidecar.summary(),
            self.sidecar_ignoring_sigterm.summary(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn series(seconds: &[f64], requests: usize) -> Series {
        Series(seconds.iter().map(|seconds| Restart { seconds: *seconds, requests, phases: None }).collect())
    }

    fn report() -> Report {
        let phases = Phases { detect: 0.5, exit: 0.1, reset: 1.0, report: 0.1, sync: 0.1, start: 0.9 };
        let mut sidecar = series(&[2.4, 2.9, 2.7], 2);
        sidecar.0[0].requests = 1;
        sidecar.0[1].phases = Some(phases);
        sidecar.0[2].phases = Some(Phases { detect: 0.7, exit: 0.100_4, ..phases });
        Report {
            footprint: Footprint { rss_kib: 4_800, peak_rss_kib: 4_900, threads: 1 },
            binary_bytes: 5_737_288,
            first_patch_ms: 41.5,
            first_patches_ms: vec![41.0, 42.0],
            sidecar,
            sidecar_ignoring_sigterm: series(&[4.5], 2),
            supervisor: series(&[0.1, 0.2], 2),
            supervisor_ignoring_sigterm: series(&[2.1], 1),
            recreate: series(&[5.0], 0),
            in_a_row: InARow {
                sidecar: Row { seconds: vec![5.7, 2.5], within_seconds: 20.5 },
                supervisor: Row { seconds: vec![0.1, 0.2], within_seconds: 61.0 },
            },
            cpus: 2,
        }
    }

    #[test]
    fn result_has_the_keys_that_others_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = report().write(folder.path()).unwrap();
        assert_eq!(path.file_name().unwrap(), "agent.json");
        let written: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let figures = ["rss_kib", "binary_bytes", "first_patch_ms"].map(|key| written[key].clone());
        assert_eq!(figures, [json!(4_800), json!(5_737_288), json!(41.5)]);
        let seconds = ["sidecar", "supervisor", "recreate"].map(|mode| written[mode]["seconds"].clone());
        assert_eq!(seconds, [json!([2.4, 2.9, 2.7]), json!([0.1, 0.2]), json!([5.0])]);
        assert_eq!(written["sidecar"]["phases"].as_array().unwrap().len(), 2);
        assert_eq!((&written["sidecar"]["median"], &written["sidecar"]["requests"]), (&json!(2.7), &json!([1, 2, 2])));
        assert_eq!(written["recreate"].get("phases"), None);
    }

    #[test]
    fn table_says_what_is_met_and_what_is_missed() {
        let table = report().table();
        let lines: Vec<String> =
            table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let wanted = [
            "agent, 4 workers on 2 nodes measured target",
            "resident memory 4.92 MB 5 MB met",
            "its peak 5.02 MB 5 MB MISSED",
            "binary 5.74 MB 6 MB met",
            "threads 1 1 met",
            "start to first report 41.5 ms 60 ms met",
            "sidecar: requests per restart 2 2 met",
            "supervisor: requests per restart 2 1 MISSED",
            "sidecar: exit to last start 2.7 s 2.5 s MISSED",
            "sidecar: longest 2.9 s",
            "sidecar, SIGTERM ignored: exit to last start 4.5 s",
            "sidecar, SIGTERM ignored: longest 4.5 s",
            "supervisor: exit to last start 0.15 s 0.3 s met",
            "supervisor: longest 0.2 s",
            "supervisor, SIGTERM ignored: exit to last start 2.1 s",
            "supervisor, SIGTERM ignored: longest 2.1 s",
            "Recreate: exit to last start 5 s",
            "Recreate: longest 5 s",
            "sidecar: 2 failures in a row 20.5 s 60 s met",
            "sidecar: growth of the longest 1.97 1.5 MISSED",
            "supervisor: 2 failures in a row 61 s 60 s MISSED",
            "supervisor: growth of the longest 1 1.5 met",
            "Medians of 3 restarts. Where a sidecar's time goes: 2.7 s, detect 0.6 s, exit 0.1 s, reset 1 s, report 0.1 s, \
             sync 0.1 s, start 0.9 s; if SIGTERM is ignored: 4.5 s.",
        ];
        assert_eq!(lines, wanted);
    }
}
