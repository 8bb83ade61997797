//! The steps of one restart in place, and the table of their times. Pure.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use jobset_api::agent::NAME as AGENT;
use jobset_harness::median::median;
use serde::Serialize;

use super::kubelet_log::{LogLine, PodIdentity};
use crate::report::{Table, rounded};

/// Name of the worker's container.
const WORKER: &str = "worker";

/// The steps in their order: what ends each of them.
pub(super) const STEPS: [&str; 12] = [
    "the worker exits",
    "its kubelet's relist observes the exit",
    "the JobSet's deprecatedEpoch rises",
    "the last Pod: the kubelet's relist observes the agent's exit",
    "the last Pod: its containers are killed and removed",
    "the last Pod: the kubelet creates the agent",
    "the last Pod: a relist observes the running agent",
    "the JobSet's syncedEpoch rises",
    "the last Pod: the startup probe succeeds",
    "the last Pod: the kubelet syncs it with a newer relist",
    "the last Pod: the kubelet creates the worker",
    "the last worker runs",
];

/// Seconds from the worker's exit to each of [`STEPS`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RestartTrace {
    pub(super) seconds: [f64; STEPS.len()],
    /// Whether the last worker's Pod is on the node of the failed one.
    pub(super) on_the_same_node: bool,
    /// Whether the worker that failed is also the last one that started.
    pub(super) is_the_failed_pod: bool,
}

/// Times of a restart that no kubelet's log has, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct RestartTimes {
    pub(super) exited: f64,
    pub(super) deprecated: f64,
    pub(super) synced: f64,
    pub(super) started: f64,
}

/// One Pod, and the log of its kubelet since the restart began.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedPod<'a> {
    pub(super) pod: &'a PodIdentity,
    pub(super) log: &'a str,
}

impl LoggedPod<'_> {
    /// The first line from `from` on that fulfils the condition; in seconds since the exit.
    fn first(&self, what: &str, from: f64, exited: f64, is_it: impl Fn(&LogLine<'_>) -> bool) -> Result<f64> {
        let found = self.times(exited, is_it).find(|second| *second >= from);
        found.with_context(|| format!("no line of {} after {from:.3} s: {what}", self.pod.namespaced_name))
    }

    fn times(&self, exited: f64, is_it: impl Fn(&LogLine<'_>) -> bool) -> impl Iterator<Item = f64> {
        let lines = self.log.lines().filter_map(LogLine::parse).filter(|line| line.is_about(self.pod));
        lines.filter(move |line| is_it(line)).map(move |line| line.seconds_since(exited))
    }
}

/// Finds the steps of a restart in the logs.
///
/// # Errors
/// If a line is missing.
pub(super) fn steps(times: RestartTimes, failed: LoggedPod<'_>, last: LoggedPod<'_>) -> Result<[f64; STEPS.len()]> {
    let RestartTimes { exited, deprecated, synced, started } = times;
    let observes = |state: &'static str| {
        move |line: &LogLine<'_>| line.message == "GenericPLEG" && line.value("newState") == Some(state)
    };
    let creates = |container: &'static str| {
        move |line: &LogLine<'_>| {
            line.message == "Creating container in pod" && line.value("container") == Some(container)
        }
    };
    let says = |message: &'static str| move |line: &LogLine<'_>| line.message == message;
    let exit_observed = failed.first("the exit in the failed Pod", 0.0, exited, observes("exited"))?;
    let agent_exit = last.first("the exit of the agent", 0.0, exited, observes("exited"))?;
    let removed = last.first("the end of the reset", agent_exit, exited, says("SyncPod exit"))?;
    let agent = last.first("the creation of the agent", removed, exited, creates(AGENT))?;
    let agent_runs = last.first("the running agent", agent, exited, observes("running"))?;
    let probe = last.first("the startup probe", agent, exited, |line| {
        line.message == "Probe succeeded" && line.value("probeType") == Some("Startup")
    })?;
    let worker = last.first("the creation of the worker", agent, exited, creates(WORKER))?;
    let synced_pod = last.times(exited, says("SyncPod enter")).filter(|second| *second <= worker).last();
    let synced_pod = synced_pod.context("no sync before the worker's creation")?;
    let seconds = [
        0.0,
        exit_observed,
        deprecated - exited,
        agent_exit,
        removed,
        agent,
        agent_runs,
        synced - exited,
        probe,
        synced_pod,
        worker,
        started - exited,
    ];
    Ok(seconds.map(|second| rounded(second, 1e3)))
}

/// The median, the least and the most of each step, and the median of the time since the step before.
pub(super) fn summary(traces: &[RestartTrace]) -> String {
    let mut table = Table::new(&["restart of a sidecar's group", "at", "from", "to", "since the step before"]);
    for (index, step) in STEPS.iter().enumerate() {
        let times = |index: usize| traces.iter().filter_map(move |trace| trace.seconds.get(index).copied());
        let since = |trace: &RestartTrace| {
            let before = index.checked_sub(1).and_then(|before| trace.seconds.get(before))?;
            Some(trace.seconds.get(index)? - before)
        };
        let cells = [
            median(times(index)),
            times(index).fold(f64::INFINITY, f64::min),
            times(index).fold(f64::NEG_INFINITY, f64::max),
            median(traces.iter().filter_map(since)),
        ];
        let mut line = vec![(*step).to_owned()];
        line.extend(cells.map(|cell| if cell.is_finite() { format!("{cell:.3} s") } else { String::new() }));
        table.line(&line);
    }
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for trace in traces {
        let place = match (trace.is_the_failed_pod, trace.on_the_same_node) {
            (true, _) => "the failed worker's own Pod",
            (false, true) => "a Pod on the failed worker's node",
            (false, false) => "a Pod on another node",
        };
        *places.entry(place).or_default() += 1;
    }
    let places: Vec<String> = places.iter().map(|(place, times)| format!("{place} {times} times")).collect();
    format!("{table}The last worker was in {}.\n", places.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::lines;

    const LOG: &str = r#"I0909 01:46:41.000000 1 generic.go:1] "GenericPLEG" podUID="2" newState="exited"
I0909 01:46:41.100000 1 generic.go:1] "GenericPLEG" podUID="1" newState="exited"
I0909 01:46:41.100000 1 kubelet.go:1] "SyncPod enter" pod="ns/b" podUID="2"
I0909 01:46:41.200000 1 kubelet.go:1] "SyncPod exit" pod="ns/b" podUID="2"
I0909 01:46:41.300000 1 runtime.go:1] "Creating container in pod" container="jobset-agent" pod="ns/b"
I0909 01:46:41.400000 1 generic.go:1] "GenericPLEG" podUID="2" newState="running"
I0909 01:46:41.600000 1 prober.go:1] "Probe succeeded" probeType="Startup" pod="ns/b"
I0909 01:46:41.700000 1 kubelet.go:1] "SyncPod enter" pod="ns/b" podUID="2"
I0909 01:46:41.750000 1 kubelet.go:1] "SyncPod enter" pod="ns/a" podUID="1"
I0909 01:46:41.800000 1 runtime.go:1] "Creating container in pod" container="worker" pod="ns/b"
I0909 01:46:42.000000 1 kubelet.go:1] "SyncPod enter" pod="ns/b" podUID="2"
"#;

    fn pod(uid: &str, name: &str) -> PodIdentity {
        PodIdentity { uid: uid.into(), namespaced_name: name.into() }
    }

    #[test]
    fn steps_of_a_restart_are_found_in_the_logs() {
        let (failed, last) = (pod("1", "ns/a"), pod("2", "ns/b"));
        let times = RestartTimes {
            exited: 1_000_000_000.5,
            deprecated: 1_000_000_000.625,
            synced: 1_000_000_001.0,
            started: 1_000_000_001.75,
        };
        let logged = |pod| LoggedPod { pod, log: LOG };
        let found = steps(times, logged(&failed), logged(&last)).unwrap();
        let expected = vec![0.0, 0.6, 0.125, 0.5, 0.7, 0.8, 0.9, 0.5, 1.1, 1.2, 1.3, 1.25];
        assert_eq!(found.to_vec(), expected);
        let error = steps(times, logged(&last), logged(&failed)).unwrap_err().to_string();
        assert_eq!(error, "no line of ns/a after 0.600 s: the end of the reset");
    }

    #[test]
    fn summary_has_the_median_of_each_step() {
        let trace = |second: f64, on_the_same_node| RestartTrace {
            seconds: [0.0, second, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 3.0],
            on_the_same_node,
            is_the_failed_pod: false,
        };
        let summary = lines(&summary(&[trace(0.5, true), trace(1.0, true), trace(0.75, false)]));
        assert_eq!(summary[2], "its kubelet's relist observes the exit 0.750 s 0.500 s 1.000 s 0.750 s");
        assert_eq!(summary[3], "the JobSet's deprecatedEpoch rises 2.000 s 2.000 s 2.000 s 1.250 s");
        let places = "The last worker was in a Pod on another node 1 times, a Pod on the failed worker's node 2 times.";
        assert_eq!(summary.last().map(String::as_str), Some(places));
    }
}
