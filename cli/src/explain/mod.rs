//! `explain`: why a JobSet does not run, and what to do.
//!
//! [`Facts`] are what was seen of the cluster. Each rule looks at them for one kind of reason and adds what it finds;
//! [`explain`] lists the rules in the order of their importance, which is that of the findings.

mod admission;
mod barrier;
mod controller;
mod creation;
mod facts;
mod order;
mod outcome;
mod pods;
mod refused;
mod render;
mod standing;
#[cfg(test)]
mod tests;
mod trouble;

use kube::ResourceExt as _;
use serde::Serialize;

pub use facts::{Facts, LeaseSeen, Readable};

use crate::status::{self, State};

/// Why a JobSet runs or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// What it is doing.
    pub state: State,
    /// Whether it runs or has completed.
    pub runs: bool,
    /// Jobs that are ready or have succeeded.
    pub jobs_ready: i64,
    /// Jobs that there should be.
    pub jobs: i64,
    /// What was found, the most important first.
    pub findings: Vec<Finding>,
}

/// One reason, or one thing to know.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// In one word, for programs.
    pub reason: &'static str,
    /// What is the case, in one line.
    pub what: String,
    /// More of it: which Pods, in whose words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// What to do.
    pub advice: String,
}

impl Finding {
    fn new(reason: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { reason, what: what.into(), details: Vec::new(), advice: advice.into() }
    }

    fn with(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }
}

type Rule = fn(&Facts) -> Vec<Finding>;

/// It is over, or not to run: nothing else matters.
const SETTLED: [Rule; 4] = [outcome::check, standing::deleting, standing::managed_elsewhere, standing::suspended];

/// It has nothing to run.
const EMPTY: [Rule; 1] = [standing::no_jobs];

/// It is left alone, and nothing else is tried.
const LEFT_ALONE: [Rule; 2] = [refused::invalid, admission::check];

/// What keeps it from running, the most important first.
const CAUSES: [Rule; 8] = [
    // It cannot run as it is.
    refused::unsupported,
    refused::child_refused,
    barrier::blocked,
    // Nobody carries it out.
    controller::check,
    // Something is yet to come.
    order::check,
    creation::check,
    pods::check,
    barrier::waiting,
];

/// What to know also of one that runs.
const REMARKS: [Rule; 4] = [barrier::restarting, refused::not_in_place, outcome::budget, admission::check];

/// Why it runs, or does not.
pub fn explain(facts: &Facts) -> Explanation {
    use State::{Completed, Deleting, Failed, Invalid, ManagedElsewhere, NoJobs, Running, Suspended};

    let state = status::state(&facts.jobset);
    let (jobs_ready, jobs) = status::jobs(&facts.jobset);
    let all = |rules: &[Rule]| rules.iter().flat_map(|rule| rule(facts)).collect::<Vec<_>>();
    let findings = match state {
        Completed | Failed | Deleting | ManagedElsewhere | Suspended => all(&SETTLED),
        Invalid => all(&LEFT_ALONE),
        NoJobs => all(&EMPTY),
        Running => all(&REMARKS),
        _ => [all(&CAUSES), all(&REMARKS)].concat(),
    };
    let runs = state.is_good();
    Explanation {
        name: facts.jobset.name_any(),
        namespace: facts.jobset.namespace().unwrap_or_default(),
        state,
        runs,
        jobs_ready,
        jobs,
        findings,
    }
}
