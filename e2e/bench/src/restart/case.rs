//! What is measured: the cases, and the order in which they run. Pure.

use std::fmt;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::{at_least_one, results};

/// What happens to the Pods besides their agents' reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Nothing: Pods stay as the Job controller creates them. The first failure is one agent that restarts by itself.
    Bare,
    /// What kubelets write to the status of Pods. The first failure is a terminated worker in a Pod's status.
    Full,
}

/// What an agent does with its watch on the JobSet when its Pod restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum WatchMode {
    /// The watch ends with the container, and the next container opens a new one: the agent as a sidecar.
    #[serde(rename = "new-watch")]
    New,
    /// The watch stays: the agent as the worker's supervisor, which outlives the worker.
    #[serde(rename = "kept-watch")]
    Kept,
}

/// How the group restarts; `restartStrategy` of the JobSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "strategy")]
pub(super) enum Strategy {
    /// Agents restart their Pods in place.
    #[serde(rename = "InPlaceRestart")]
    InPlace { load: Load, watch: WatchMode },
    /// The Job controller replaces all Pods. There are no agents.
    Recreate,
}

/// One measurement, on a control plane of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Case {
    /// Pods of the JobSet.
    pub(super) agents: usize,
    #[serde(flatten)]
    pub(super) strategy: Strategy,
    /// Pods that belong to no JobSet.
    pub(super) foreign_pods: usize,
}

impl Strategy {
    /// The value of `restartStrategy`.
    pub(super) fn name(self) -> &'static str {
        if self == Self::Recreate { "Recreate" } else { "InPlaceRestart" }
    }

    /// The case in words, and the suffix of its file.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::InPlace { load: Load::Bare, watch: WatchMode::New } => ("in place, bare", ""),
            Self::InPlace { load: Load::Bare, watch: WatchMode::Kept } => ("in place, bare, kept", "-kept"),
            Self::InPlace { load: Load::Full, watch: WatchMode::New } => ("in place, full", "-full"),
            Self::InPlace { load: Load::Full, watch: WatchMode::Kept } => ("in place, full, kept", "-full-kept"),
            Self::Recreate => ("Recreate", "-recreate"),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Pods, {}", self.agents, self.strategy.words().0)
    }
}

impl Case {
    /// The file of its result.
    pub(super) fn file(self) -> String {
        format!("restart-{}{}.json", self.agents, self.strategy.words().1)
    }
}

/// Measures restarts of a JobSet of N Pods on a real control plane without kubelets, with simulated agents.
///
/// Prints a table, and writes restart-N.json for each number of agents into the results folder. Other cases than the bare
/// load with new watches have a suffix in their file's name: restart-N-full.json, restart-N-recreate.json.
#[derive(Clone, Debug, Parser)]
#[command(name = "bench")]
pub struct Options {
    /// Numbers of agents: one JobSet of as many Pods for each.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "100,1000,5000", value_parser = at_least_one())]
    pub agents: Vec<usize>,
    /// Restarts of each JobSet; the first is reported with the others.
    #[arg(long, value_name = "K", default_value = "5", value_parser = at_least_one())]
    pub restarts: usize,
    /// What happens to Pods in a restart: their agents' reports alone (bare), also what kubelets write (full).
    #[arg(long = "load", value_name = "LOAD,...", value_delimiter = ',', default_value = "bare,full")]
    pub loads: Vec<Load>,
    /// What an agent does with its watch in a restart: open a new one as a sidecar (new), keep it as a supervisor (kept).
    #[arg(long = "watch", value_name = "WATCH,...", value_delimiter = ',', default_value = "new")]
    pub watches: Vec<WatchMode>,
    /// Measure restarts by recreation of all Pods, too.
    #[arg(long)]
    pub recreate: bool,
    /// The program jobset-controller to measure. Default: build that of the image.
    #[arg(long, value_name = "PATH")]
    pub controller: Option<PathBuf>,
    /// Pods that belong to no JobSet, for the controller's memory; where the load is bare and watches are new.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub foreign_pods: usize,
    /// Changes to Pods from which the controller's CPU for one change is found; 0 leaves it out.
    #[arg(long, value_name = "M", default_value_t = 10_000)]
    pub pod_events: usize,
    /// Folder of the results.
    #[arg(long, value_name = "DIR", default_value_os_t = results())]
    pub results: PathBuf,
}

impl Options {
    /// The cases, by size.
    pub(super) fn cases(&self) -> Vec<Case> {
        let in_place = self
            .loads
            .iter()
            .flat_map(|load| self.watches.iter().map(move |watch| (*load, *watch)))
            // Agents that keep their watch are supervisors, and the Pods of the full load have sidecars: the controller
            // would wait for the end of workers that outlive their epoch.
            .filter(|case| *case != (Load::Full, WatchMode::Kept))
            .map(|(load, watch)| Strategy::InPlace { load, watch });
        let strategies: Vec<Strategy> = in_place.chain(self.recreate.then_some(Strategy::Recreate)).collect();
        let case = |agents: usize, strategy: Strategy| {
            let is_principal = strategy == Strategy::InPlace { load: Load::Bare, watch: WatchMode::New };
            Case { agents, strategy, foreign_pods: if is_principal { self.foreign_pods } else { 0 } }
        };
        let of = |agents: &usize| strategies.iter().map(|strategy| case(*agents, *strategy)).collect::<Vec<_>>();
        self.agents.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_unique_files_and_foreign_pods_are_in_principal_one() {
        let arguments = "bench --agents 100,5000 --load bare,full --watch new,kept --recreate --foreign-pods 9";
        let cases = Options::try_parse_from(arguments.split(' ')).unwrap().cases();
        let files: Vec<String> = cases.iter().map(|case| case.file()).collect();
        let suffixes = ["", "-kept", "-full", "-recreate"];
        let of = |agents: u32| suffixes.map(|suffix| format!("restart-{agents}{suffix}.json"));
        assert_eq!(files, [of(100), of(5000)].concat());
        let foreign: Vec<usize> = cases.iter().map(|case| case.foreign_pods).collect();
        assert_eq!(foreign, [9, 0, 0, 0, 9, 0, 0, 0]);
    }

    #[test]
    fn options_defaults_measure_both_loads_with_new_watches() {
        let options = Options::try_parse_from(["bench"]).unwrap();
        assert_eq!((options.loads, options.watches), (vec![Load::Bare, Load::Full], vec![WatchMode::New]));
        assert!(Options::try_parse_from(["bench", "--restarts", "0"]).is_err());
    }
}
