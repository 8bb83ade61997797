//! The result of one case, as JSON.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use super::case::{Case, Load, Strategy, WatchMode};
use super::jobset::Shape;
use super::meter::Cpu;
use super::phases::Phases;
use super::requests::Requests;
use jobset_harness::median::median;

/// One case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    #[serde(skip)]
    pub(super) case: Case,
    /// Pods of the JobSet; each has an agent, unless the strategy is Recreate.
    pub(super) agents: usize,
    /// `restartStrategy`.
    pub(super) strategy: &'static str,
    /// Only in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) load: Option<Load>,
    /// Only in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) watch: Option<WatchMode>,
    /// replicatedJobs of the JobSet.
    pub(super) shape: Vec<Shape>,
    /// The restarts, in their order.
    pub(super) restarts: Vec<Restart>,
    /// Peak of the controller's resident memory, from its start to the end of the case.
    pub(super) controller_peak_rss_kib: u64,
    /// CPU of the controller for one change to a Pod that means nothing to it, in microseconds. Only where it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_us_per_event: Option<f64>,
    /// The changes from which that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod_events: Option<usize>,
    /// From the start of the agents to the first lift of the last barrier. Only in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start_seconds: Option<f64>,
    /// One Pod as JSON, at the end.
    pub(super) pod_bytes: usize,
    /// The JobSet as JSON, at the end.
    pub(super) jobset_bytes: usize,
    /// Connections of the agents to the API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) connections: Option<usize>,
    /// Requests of agents that were under way at once, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) agent_seats: Option<usize>,
    /// Pods that belong to no JobSet.
    pub(super) foreign_pods: usize,
    /// CPUs of this machine.
    pub(super) cpus: usize,
    /// Medians of this case over those of the bare load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_to_bare: Option<Ratio>,
}

/// One restart of the group.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Restart {
    /// In place from the failure, visible at the API server, to the last agent that lifted its barrier; by recreation to
    /// the creation of the last Pod.
    pub(super) seconds: f64,
    /// The parts of that.
    pub(super) phases: Phases,
    /// Requests that the API server answered, of everybody, until the JobSet had settled; ended watches among them.
    pub(super) api_requests: u64,
    /// Writes to the JobSet until it had settled.
    pub(super) jobset_writes: usize,
    /// CPU of the controller until the JobSet had settled.
    pub(super) controller_cpu_seconds: f64,
    /// CPU of the API server until the JobSet had settled.
    pub(super) apiserver_cpu_seconds: f64,
    /// The requests by verb and resource.
    pub(super) requests: Requests,
    /// CPU of everybody from the failure to the end of the restart, without what settles afterwards.
    pub(super) cpu: Cpu,
    /// Reports that were refused or got no answer in time, and were repeated.
    pub(super) failed_reports: usize,
}

/// Medians over medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Ratio {
    pub(super) seconds: f64,
    pub(super) api_requests: f64,
    pub(super) controller_cpu_seconds: f64,
    pub(super) apiserver_cpu_seconds: f64,
}

impl Report {
    /// Writes the result into `folder`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        write_json(self, &folder.join(self.case.file()))
    }

    /// The median of a figure over the restarts.
    pub(super) fn median(&self, figure: impl Fn(&Restart) -> f64) -> f64 {
        median(self.restarts.iter().map(figure))
    }

    /// Sets the ratio of a full load to the bare one of as many agents and the same watches among `others`.
    pub(super) fn compare(&mut self, others: &[Self]) {
        let Strategy::InPlace { load: Load::Full, watch } = self.case.strategy else { return };
        let bare = Strategy::InPlace { load: Load::Bare, watch };
        let same = |other: &&Self| other.agents == self.agents && other.case.strategy == bare;
        let Some(bare) = others.iter().find(same) else { return };
        let ratio = |figure: fn(&Restart) -> f64| rounded(self.median(figure) / bare.median(figure), 100.0);
        self.ratio_to_bare = Some(Ratio {
            seconds: ratio(|restart| restart.seconds),
            api_requests: ratio(|restart| number(restart.api_requests)),
            controller_cpu_seconds: ratio(|restart| restart.controller_cpu_seconds),
            apiserver_cpu_seconds: ratio(|restart| restart.apiserver_cpu_seconds),
        });
    }
}

/// Writes a result for other programs to read.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write_json(result: &impl Serialize, path: &Path) -> Result<()> {
    let json = serde_json::to_string_pretty(result).context("a result is not JSON")? + "\n";
    fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))
}

/// Seconds, to a tenth of a millisecond.
pub(super) fn seconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64(), 10_000.0)
}

/// A count, for arithmetic.
pub(super) fn number(count: impl TryInto<u32>) -> f64 {
    f64::from(count.try_into().unwrap_or(u32::MAX))
}

/// Bytes as MB, to a hundredth.
pub(super) fn megabytes(bytes: f64) -> f64 {
    rounded(bytes / 1e6, 100.0)
}

/// Rounded to so many parts of one.
pub(super) fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};
    use std::time::Instant;

    use super::*;

    /// A case with a restart for each number of seconds.
    pub(crate) fn report(agents: usize, strategy: Strategy, seconds: &[f64]) -> Report {
        let restart = |seconds: &f64| Restart {
            seconds: *seconds,
            phases: Phases::in_place([Instant::now(); 6]),
            api_requests: 10,
            jobset_writes: 2,
            controller_cpu_seconds: seconds / 10.0,
            apiserver_cpu_seconds: seconds / 2.0,
            requests: Requests::default(),
            cpu: Cpu {
                elapsed: *seconds,
                api_server: seconds / 2.0,
                etcd: 0.0,
                controller: seconds / 10.0,
                controller_manager: 0.0,
                load_generator: seconds / 4.0,
                machine: *seconds,
            },
            failed_reports: 0,
        };
        let (load, watch) = match strategy {
            Strategy::InPlace { load, watch } => (Some(load), Some(watch)),
            Strategy::Recreate => (None, None),
        };
        Report {
            case: Case { agents, strategy, foreign_pods: 0 },
            agents,
            strategy: strategy.name(),
            load,
            watch,
            shape: Vec::new(),
            restarts: seconds.iter().map(restart).collect(),
            controller_peak_rss_kib: 20_480,
            cpu_us_per_event: None,
            pod_events: None,
            start_seconds: None,
            pod_bytes: 1,
            jobset_bytes: 1,
            connections: None,
            agent_seats: None,
            foreign_pods: 0,
            cpus: 2,
            ratio_to_bare: None,
        }
    }

    pub(crate) fn in_place(load: Load) -> Strategy {
        Strategy::InPlace { load, watch: WatchMode::New }
    }

    #[test]
    fn result_has_the_keys_that_others_read() {
        let json = serde_json::to_value(report(100, in_place(Load::Bare), &[1.5])).unwrap();
        assert_eq!((&json["agents"], &json["strategy"]), (&json!(100), &json!("InPlaceRestart")));
        assert_eq!((&json["load"], &json["watch"]), (&json!("bare"), &json!("new-watch")));
        assert_eq!(json["controller_peak_rss_kib"], 20_480);
        let restart = &json["restarts"][0];
        let figures = ["seconds", "api_requests", "jobset_writes", "controller_cpu_seconds", "apiserver_cpu_seconds"];
        assert!(figures.iter().all(|key| restart[key].is_number()), "{restart}");
        let phases: Vec<&String> = restart["phases"].as_object().unwrap().keys().collect();
        assert_eq!(phases.len(), 5, "{phases:?}");
        assert_eq!(json.get("ratio_to_bare"), None::<&Value>);
    }

    #[test]
    fn full_load_is_compared_with_the_bare_one_of_as_many_agents() {
        let bare = report(100, in_place(Load::Bare), &[1.0, 2.0, 3.0]);
        let other = report(1000, in_place(Load::Bare), &[100.0]);
        let mut full = report(100, in_place(Load::Full), &[5.0]);
        full.compare(&[other, bare.clone()]);
        assert!((full.ratio_to_bare.unwrap().seconds - 2.5).abs() < 1e-9);
        let mut again = bare.clone();
        again.compare(&[bare]);
        assert_eq!(again.ratio_to_bare, None);
    }
}
