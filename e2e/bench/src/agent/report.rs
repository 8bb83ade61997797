//! The figures of the agent, and their table beside what they must be at most. Pure.

use std::collections::BTreeMap;

use jobset_harness::median::median;
use serde::Serialize;

use super::mode::ModeCase;
use crate::report::{Report, Table, megabytes, number, rounded};

/// Most threads of an agent: two of them copy the output of a supervised worker.
const THREADS: f64 = 3.0;
/// Most resident memory of an agent, and the largest binary, in MB.
const RSS_MB: f64 = 6.0;
const BINARY_MB: f64 = 6.6;
/// Most CPU time of an agent whose worker writes its step a hundred times a second, in percent of a core, and its memory in MB.
const PROGRESS_CPU_PERCENT: f64 = 1.0;
const PROGRESS_RSS_MB: f64 = 6.3;

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct AgentFigures {
    /// Release of the kubelets.
    pub(super) kubelets: String,
    /// Most resident memory of an agent after all restarts (`VmRSS`), and its peak since the start (`VmHWM`).
    pub(super) rss_kib: u64,
    pub(super) peak_rss_kib: u64,
    /// Most threads of an agent: one, and one for each output stream of a supervised worker.
    pub(super) threads: u64,
    pub(super) binary_bytes: u64,
    /// What agents took whose workers wrote their step a hundred times a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) progress: Option<ProgressFigures>,
    /// What supervisors took that copied ten lines of output for each of these steps; and those that looked for the step in them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<ProgressFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pattern: Option<ProgressFigures>,
    /// Restarts by kind: `sidecar`, `sidecar_ignoring_sigterm`, `supervisor`, `supervisor_ignoring_sigterm`, `recreate`.
    #[serde(flatten)]
    pub(super) restarts: BTreeMap<String, RestartSeries>,
}

/// What the agents took whose workers wrote their step a hundred times a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct ProgressFigures {
    /// CPU time of the busiest agent, in percent of a core.
    pub(super) cpu_percent: f64,
    /// Resident memory of the largest one.
    pub(super) rss_kib: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct RestartSeries {
    /// From the worker's exit to the last worker's start, by the workers' journals.
    pub(super) seconds: Vec<f64>,
    /// The most requests that one agent made until all workers ran.
    pub(super) requests: Vec<usize>,
}

impl RestartSeries {
    /// The median of the durations, in seconds.
    pub(super) fn median(&self) -> f64 {
        rounded(median(self.seconds.iter().copied()), 1e3)
    }
}

pub(super) fn summary(report: &Report<AgentFigures>, cases: &[ModeCase]) -> String {
    let figures = &report.figures;
    let mut table = Table::new(&["agent, 4 workers on 2 nodes", "measured", "target"]);
    table.figure("resident memory", megabytes(figures.rss_kib), Some(RSS_MB), "MB");
    table.figure("its peak", megabytes(figures.peak_rss_kib), Some(RSS_MB), "MB");
    table.figure("binary", rounded(number(figures.binary_bytes) / 1e6, 1e2), Some(BINARY_MB), "MB");
    table.figure("threads", number(figures.threads), Some(THREADS), "");
    if let Some(progress) = &figures.progress {
        table.figure("100 steps a second: CPU of a core", progress.cpu_percent, Some(PROGRESS_CPU_PERCENT), "%");
        let memory = megabytes(progress.rss_kib);
        table.figure("100 steps a second: resident memory", memory, Some(PROGRESS_RSS_MB), "MB");
    }
    if let Some(output) = &figures.output {
        table.figure("1000 lines a second: CPU of a core", output.cpu_percent, None, "%");
    }
    if let Some(pattern) = &figures.pattern {
        table.figure("1000 lines a second, with a pattern: CPU of a core", pattern.cpu_percent, None, "%");
        let memory = megabytes(pattern.rss_kib);
        table.figure("1000 lines a second, with a pattern: resident memory", memory, Some(PROGRESS_RSS_MB), "MB");
    }
    for case in cases {
        let kind = case.name;
        let Some(series) = figures.restarts.get(&case.key()) else { continue };
        table.figure(&format!("{kind}: exit to last start"), series.median(), case.most_seconds, "s");
        table.figure(&format!("{kind}: longest"), largest(&series.seconds), None, "s");
        if case.most_requests.is_some() {
            let most = series.requests.iter().max().copied().unwrap_or_default();
            table.figure(&format!("{kind}: requests per restart"), number(most), case.most_requests, "");
        }
    }
    format!("{table}The agent's build is {}. The kubelets are {}.", report.build, figures.kubelets)
}

fn largest(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::mode::CASES;
    use super::*;
    use crate::report::tests::lines;

    fn report() -> Report<AgentFigures> {
        let series =
            |seconds: &[f64], requests: &[usize]| RestartSeries { seconds: seconds.into(), requests: requests.into() };
        let figures = AgentFigures {
            kubelets: "v1.37.2".into(),
            rss_kib: 4_800,
            peak_rss_kib: 5_880,
            threads: 1,
            binary_bytes: 5_737_288,
            progress: Some(ProgressFigures { cpu_percent: 0.35, rss_kib: 6_200 }),
            output: Some(ProgressFigures { cpu_percent: 0.5, rss_kib: 6_000 }),
            pattern: Some(ProgressFigures { cpu_percent: 0.9, rss_kib: 6_100 }),
            restarts: [
                ("sidecar".into(), series(&[2.4, 2.9, 2.7], &[1, 2, 2])),
                ("supervisor".into(), series(&[0.1, 0.2], &[2, 2])),
                ("recreate".into(), series(&[5.0], &[0])),
            ]
            .into(),
        };
        Report { figures, build: "agent (fat LTO, size)", cpus: 2 }
    }

    #[test]
    fn result_has_the_keys_that_others_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = report().write(folder.path(), "agent.json").unwrap();
        let written: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let figures = ["rss_kib", "binary_bytes", "build"].map(|key| written[key].clone());
        assert_eq!(figures, [json!(4_800), json!(5_737_288), json!("agent (fat LTO, size)")]);
        let seconds = ["sidecar", "supervisor", "recreate"].map(|mode| written[mode]["seconds"].clone());
        assert_eq!(seconds, [json!([2.4, 2.9, 2.7]), json!([0.1, 0.2]), json!([5.0])]);
        assert_eq!(written["sidecar"]["requests"], json!([1, 2, 2]));
    }

    #[test]
    fn summary_says_which_targets_are_met_and_missed() {
        let expected = [
            "agent, 4 workers on 2 nodes measured target",
            "resident memory 4.92 MB 6 MB met",
            "its peak 6.02 MB 6 MB MISSED",
            "binary 5.74 MB 6.6 MB met",
            "threads 1 3 met",
            "100 steps a second: CPU of a core 0.35 % 1 % met",
            "100 steps a second: resident memory 6.35 MB 6.3 MB MISSED",
            "1000 lines a second: CPU of a core 0.5 %",
            "1000 lines a second, with a pattern: CPU of a core 0.9 %",
            "1000 lines a second, with a pattern: resident memory 6.25 MB 6.3 MB met",
            "sidecar: exit to last start 2.7 s 2.5 s MISSED",
            "sidecar: longest 2.9 s",
            "sidecar: requests per restart 2 2 met",
            "supervisor: exit to last start 0.15 s 0.3 s met",
            "supervisor: longest 0.2 s",
            "supervisor: requests per restart 2 1 MISSED",
            "recreate: exit to last start 5 s",
            "recreate: longest 5 s",
            "The agent's build is agent (fat LTO, size). The kubelets are v1.37.2.",
        ];
        assert_eq!(lines(&summary(&report(), &CASES)), expected);
    }
}
