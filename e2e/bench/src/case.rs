//! What is measured: the cases, and the order in which they run. Pure.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What happens to the Pods besides their agents' reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Nothing: Pods stay as the Job controller creates them. The first failure is one agent that restarts by itself.
    Bare,
    /// What kubelets write: see [`super::kubelet`]. The first failure is a worker that is seen to have ended.
    Full,
}

/// What an agent does with its watch on the JobSet when its Pod restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchMode {
    /// It ends with its container, and the next one opens a new watch: the agent as a sidecar.
    #[serde(rename = "new-watch")]
    New,
    /// It stays: the agent as the worker's supervisor, which outlives the worker.
    #[serde(rename = "kept-watch")]
    Kept,
}

/// How the group restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// InPlaceRestart.
    InPlace {
        /// What happens to the Pods.
        load: Load,
        /// What agents do with their watches.
        watch: WatchMode,
    },
    /// Recreate: all Pods are deleted and created anew. Without agents, which would have nothing to do.
    Recreate,
}

impl Strategy {
    /// The value of the JobSet's `restartStrategy`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InPlace { .. } => "InPlaceRestart",
            Self::Recreate => "Recreate",
        }
    }

    /// What happens to the Pods.
    pub(super) fn load(self) -> Load {
        match self {
            Self::InPlace { load, .. } => load,
            Self::Recreate => Load::Bare,
        }
    }

    /// Whether this is the case that the figures are about.
    pub(super) fn is_principal(self) -> bool {
        self == Self::InPlace { load: Load::Bare, watch: WatchMode::New }
    }
}

/// One measurement, on a control plane of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    /// Pods of the JobSet.
    pub(super) agents: usize,
    /// How it restarts.
    pub(super) strategy: Strategy,
    /// Pods that belong to no JobSet.
    pub(super) foreign_pods: usize,
}

impl Case {
    /// What tells this case from others of as many agents; empty for the principal one.
    fn suffix(self) -> &'static str {
        match self.strategy {
            Strategy::InPlace { load: Load::Bare, watch: WatchMode::New } => "",
            Strategy::InPlace { load: Load::Bare, watch: WatchMode::Kept } => "-kept",
            Strategy::InPlace { load: Load::Full, watch: WatchMode::New } => "-full",
            Strategy::InPlace { load: Load::Full, watch: WatchMode::Kept } => "-full-kept",
            Strategy::Recreate => "-recreate",
        }
    }

    /// The name of its result.
    pub(super) fn file(self) -> String {
        format!("restart-{}{}.json", self.agents, self.suffix())
    }
}

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of agents, one JobSet of as many Pods for each.
    pub agents: Vec<usize>,
    /// Restarts of each JobSet.
    pub restarts: usize,
    /// Loads of the JobSets that restart in place.
    pub loads: Vec<Load>,
    /// What their agents do with their watches.
    pub watches: Vec<WatchMode>,
    /// Whether to measure Recreate, too.
    pub recreate: bool,
    /// The program `jobset-controller`; none builds it.
    pub controller: Option<PathBuf>,
    /// Pods that belong to no JobSet, for the controller's memory; in the principal case alone.
    pub foreign_pods: usize,
    /// Changes to Pods from which the cost of one is found.
    pub pod_events: usize,
    /// Agents that share one connection to the API server.
    pub agents_per_connection: usize,
    /// Requests of agents that are under way at once.
    pub agent_seats: usize,
    /// The folder of the results.
    pub results: PathBuf,
}

impl Options {
    /// The cases, by size.
    pub(super) fn cases(&self) -> Vec<Case> {
        let in_place = self
            .loads
            .iter()
            .flat_map(|load| self.watches.iter().map(move |watch| (*load, *watch)))
            // Agents that keep their watch are supervisors, and these Pods have sidecars: with statuses, the controller
            // would see workers that outlive their epoch, and wait for their end.
            .filter(|case| *case != (Load::Full, WatchMode::Kept))
            .map(|(load, watch)| Strategy::InPlace { load, watch });
        let strategies: Vec<Strategy> = in_place.chain(self.recreate.then_some(Strategy::Recreate)).collect();
        let of = |agents: usize| {
            strategies.iter().map(move |strategy| {
                let foreign_pods = if strategy.is_principal() { self.foreign_pods } else { 0 };
                Case { agents, strategy: *strategy, foreign_pods }
            })
        };
        self.agents.iter().flat_map(|agents| of(*agents)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_a_file_and_the_principal_one_the_foreign_pods() {
        let options = Options {
            agents: vec![100, 5000],
            restarts: 1,
            loads: vec![Load::Bare, Load::Full],
            watches: vec![WatchMode::New, WatchMode::Kept],
            recreate: true,
            controller: None,
            foreign_pods: 9,
            pod_events: 0,
            agents_per_connection: 1,
            agent_seats: 1,
            results: PathBuf::new(),
        };
        let cases = options.cases();
        let files: Vec<String> = cases.iter().map(|case| case.file()).collect();
        assert_eq!(
            files,
            [
                "restart-100.json",
                "restart-100-kept.json",
                "restart-100-full.json",
                "restart-100-recreate.json",
                "restart-5000.json",
                "restart-5000-kept.json",
                "restart-5000-full.json",
                "restart-5000-recreate.json",
            ]
        );
        let foreign: Vec<usize> = cases.iter().map(|case| case.foreign_pods).collect();
        assert_eq!(foreign, [9, 0, 0, 0, 9, 0, 0, 0]);
    }
}
