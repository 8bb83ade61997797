//! What is measured: the cases, and the order in which they run. Pure.

use std::fmt;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::{at_least_one, results};

/// Restarts of each JobSet: five are enough where each takes ten seconds and more.
const RESTARTS: usize = 5;
const STREAM_RESTARTS: usize = 20;

/// What an agent does with its watch on the JobSet, or with its connection to a relay, when its Pod restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum WatchMode {
    /// It ends with the container, and the next container opens a new one: the agent as a sidecar.
    #[serde(rename = "new-watch")]
    New,
    /// It stays: the agent as the worker's supervisor, which outlives the worker.
    #[serde(rename = "kept-watch")]
    Kept,
}

/// What carries reports and epochs between the agents and the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// A watch and a patch of each agent.
    Watch,
    /// The same, with the manager of the Go JobSet as the controller.
    Go,
    /// The agent stream: connections to two relays.
    Stream,
}

/// How the group restarts; `restartStrategy` of the JobSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "strategy")]
pub(super) enum Strategy {
    #[serde(rename = "InPlaceRestart")]
    InPlace { watch: WatchMode, way: Way },
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
    pub(super) foreign_pods: usize,
}

impl Strategy {
    pub(super) fn name(self) -> &'static str {
        if self == Self::Recreate { "Recreate" } else { "InPlaceRestart" }
    }

    fn words(self) -> String {
        let Self::InPlace { watch, way } = self else { return "Recreate".to_owned() };
        let way = match way {
            Way::Watch => "in place",
            Way::Go => "Go manager",
            Way::Stream => "in place, stream",
        };
        let kept = if watch == WatchMode::Kept { ", kept" } else { "" };
        format!("{way}{kept}")
    }

    /// What carries reports and epochs, if Pods restart in place.
    pub(super) fn way(self) -> Option<Way> {
        match self {
            Self::InPlace { way, .. } => Some(way),
            Self::Recreate => None,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Pods, {}", self.agents, self.strategy.words())
    }
}

impl Case {
    pub(super) fn file(self) -> String {
        let agents = self.agents;
        let Strategy::InPlace { watch, way } = self.strategy else {
            return format!("restart-{agents}-recreate.json");
        };
        let way = match way {
            Way::Watch => "restart",
            Way::Go => "go",
            Way::Stream => "stream",
        };
        let kept = if watch == WatchMode::Kept { "-kept" } else { "" };
        format!("{way}-{agents}{kept}.json")
    }
}

/// Measures restarts of a JobSet of N Pods on a real control plane without kubelets, with simulated agents.
///
/// Prints a table, and writes restart-N.json, go-N.json and stream-N.json for each number of agents into the results
/// folder. Other cases than those with new watches or connections have a suffix in their file's name:
/// restart-N-recreate.json, stream-N-kept.json.
#[derive(Clone, Debug, Parser)]
#[command(name = "bench")]
pub struct Options {
    /// Numbers of agents: one JobSet of as many Pods for each.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "100,1000,5000", value_parser = at_least_one())]
    pub agents: Vec<usize>,
    /// Restarts of each JobSet; the first is reported with the others. Default: 20 over the stream, else 5.
    #[arg(long, value_name = "K", value_parser = at_least_one())]
    pub restarts: Option<usize>,
    /// What carries reports and epochs: watches and patches (watch), the same beside the manager of the Go JobSet (go), the
    /// agent stream (stream).
    #[arg(long = "way", value_name = "WAY,...", value_delimiter = ',', default_value = "watch,go,stream")]
    pub ways: Vec<Way>,
    /// What an agent does with its watch or its connection in a restart: open a new one as a sidecar (new), keep it as a
    /// supervisor (kept). The agents of the Go JobSet always open a new one.
    #[arg(long = "watch", value_name = "WATCH,...", value_delimiter = ',', default_value = "new")]
    pub watches: Vec<WatchMode>,
    /// Measure restarts by recreation of all Pods, too.
    #[arg(long)]
    pub recreate: bool,
    /// The program jobset-controller to measure. Default: build that of the image.
    #[arg(long, value_name = "PATH")]
    pub controller: Option<PathBuf>,
    /// The program jobset-relay to measure. Default: build that of the image.
    #[arg(long, value_name = "PATH")]
    pub relay: Option<PathBuf>,
    /// Over the stream, how many simulated agents connect at once. More than this share the machine's CPUs with relays and API
    /// server so long that they give up, and each asks the API server.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = at_least_one())]
    pub connecting: usize,
    /// From the last failure on, over how many seconds the CPU is counted where the way is the stream: annotations follow.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub annotation_seconds: u64,
    /// Over the stream, lets no worker fail before all annotations of the restart before are written. Without it, a restart that begins
    /// before they are due leaves them out, as where a group fails twice within a minute; otherwise it meets them.
    #[arg(long)]
    pub settle: bool,
    /// Pods that belong to no JobSet, for the controller's memory; where the way is watch and watches are new.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub foreign_pods: usize,
    /// Folder of the results.
    #[arg(long, value_name = "DIR", default_value_os_t = results())]
    pub results: PathBuf,
}

impl Options {
    /// The cases, by size. The Go manager comes before the stream, whose results are compared with it.
    pub(super) fn cases(&self) -> Vec<Case> {
        let of_way = |way: Way| self.watches.iter().map(move |watch| Strategy::InPlace { watch: *watch, way });
        let ways = [Way::Watch, Way::Go, Way::Stream].into_iter().filter(|way| self.ways.contains(way));
        let in_place = ways.flat_map(of_way).filter(|strategy| is_measured(*strategy));
        let strategies: Vec<Strategy> = in_place.chain(self.recreate.then_some(Strategy::Recreate)).collect();
        let case = |agents: usize, strategy: Strategy| {
            let is_principal = strategy == Strategy::InPlace { watch: WatchMode::New, way: Way::Watch };
            Case { agents, strategy, foreign_pods: if is_principal { self.foreign_pods } else { 0 } }
        };
        let of = |agents: &usize| strategies.iter().map(|strategy| case(*agents, *strategy)).collect::<Vec<_>>();
        self.agents.iter().flat_map(of).collect()
    }

    pub(super) fn restarts_of(&self, case: Case) -> usize {
        let default = if case.strategy.way() == Some(Way::Stream) { STREAM_RESTARTS } else { RESTARTS };
        self.restarts.unwrap_or(default)
    }
}

/// Whether the case exists: the agents of the Go JobSet exit in each restart, as sidecars and as supervisors.
fn is_measured(strategy: Strategy) -> bool {
    strategy != Strategy::InPlace { watch: WatchMode::Kept, way: Way::Go }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &str) -> Options {
        Options::try_parse_from(arguments.split(' ')).unwrap()
    }

    #[test]
    fn cases_have_unique_files_principal_has_foreign_pods() {
        let cases = options("bench --agents 100,5000 --watch new,kept --recreate --foreign-pods 9").cases();
        let files: Vec<String> = cases.iter().map(|case| case.file()).collect();
        let of = |agents: u32| {
            let files = ["restart-N", "restart-N-kept", "go-N", "stream-N", "stream-N-kept", "restart-N-recreate"];
            files.iter().map(|file| format!("{}.json", file.replace('N', &agents.to_string()))).collect::<Vec<_>>()
        };
        assert_eq!(files, [of(100), of(5000)].concat());
        let foreign: Vec<usize> = cases.iter().map(|case| case.foreign_pods).filter(|pods| *pods > 0).collect();
        assert_eq!((cases[0].foreign_pods, foreign), (9, vec![9, 9]));
    }

    #[test]
    fn stream_has_more_restarts() {
        let options = options("bench --agents 100 --way go,stream");
        let of = |case: &Case| (case.to_string(), options.restarts_of(*case));
        let wanted = [("100 Pods, Go manager", 5), ("100 Pods, in place, stream", 20)];
        let wanted = wanted.map(|(words, restarts)| (words.to_owned(), restarts));
        assert_eq!(options.cases().iter().map(of).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn options_defaults_measure_all_ways_with_new_watches() {
        let defaults = options("bench");
        assert_eq!(defaults.watches, [WatchMode::New]);
        assert_eq!(defaults.ways, [Way::Watch, Way::Go, Way::Stream]);
        let given = options("bench --restarts 3");
        assert!(given.cases().iter().all(|case| given.restarts_of(*case) == 3));
        assert!(Options::try_parse_from(["bench", "--restarts", "0"]).is_err());
    }
}
