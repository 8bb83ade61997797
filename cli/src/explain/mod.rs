//! `explain`: why a JobSet does not run, and what to do.
//!
//! Each rule looks at the [`Facts`] for one kind of cause and adds findings. [`explain`] applies the rules in the order of
//! their importance, which is also the order of the findings. What contradicts the JobSet's status comes first.

mod admission;
mod barrier;
mod candidates;
mod capacity;
mod controller;
mod crash_loop;
mod creation;
mod facts;
mod inactive;
mod network;
mod nodes;
mod order;
mod outcome;
mod pods;
mod problem;
mod render;
mod reported;
mod stalled;
mod stream;
mod topology;

use kube::ResourceExt as _;
use serde::Serialize;

pub use candidates::CandidateNode;
pub use capacity::PodRequests;
pub use facts::{FactNeeds, Facts};

use crate::status::{self, JobSetState, Workers};

/// Why a JobSet runs or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub name: String,
    pub namespace: String,
    pub state: JobSetState,
    /// Whether it runs, with all of its workers, or has completed.
    pub runs: bool,
    /// Jobs that are ready or have succeeded.
    pub jobs_ready: i64,
    pub jobs: i64,
    /// Its workers, by its Jobs and Pods; none if no worker should run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<Workers>,
    /// That no controller leads, and since when, if none does although the JobSet needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_controller: Option<String>,
    /// The findings, the most important first.
    pub findings: Vec<Finding>,
}

/// A cause, or a remark.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// A word for programs.
    pub reason: String,
    /// The finding, in one line.
    pub what: String,
    /// Names of Pods, and messages of other programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    pub advice: String,
}

impl Finding {
    fn new(reason: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { reason: reason.into(), what: what.into(), details: Vec::new(), advice: advice.into() }
    }

    fn with(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }
}

type Rule = fn(&Facts) -> Vec<Finding>;

/// Rules for a JobSet that has ended or is not to run, after [`outcome::check`].
const SETTLED: [Rule; 4] =
    [inactive::deleting, inactive::managed_elsewhere, controller::check_suspended, inactive::suspended];

/// Rules for a JobSet without Jobs.
const EMPTY: [Rule; 2] = [controller::check, inactive::no_jobs];

/// Rules for a JobSet that the controller does not reconcile.
const NOT_RECONCILED: [Rule; 3] = [controller::check, reported::invalid, admission::check];

/// Rules for causes that keep a JobSet from running, the most important first. [`barrier::waiting`] is the last of them.
const CAUSES: [Rule; 13] = [
    // No controller leads, so that the status is old.
    controller::check,
    // The controller reports a failure.
    reported::internal_error,
    reported::unsupported,
    reported::child_refused,
    reported::recreation_blocked,
    barrier::blocked,
    barrier::not_running,
    crash_loop::check,
    pods::failing_jobs,
    // The JobSet waits.
    order::check,
    creation::check,
    creation::missing,
    pods::check,
];

/// Rules for remarks, which also apply to a JobSet that runs.
const REMARKS: [Rule; 9] = [
    reported::restart_request,
    reported::not_in_place,
    stream::unavailable,
    stream::not_found,
    network::blocked,
    stream::missing,
    nodes::bad,
    outcome::budget,
    admission::check,
];

/// Rules for remarks about a JobSet whose workers all run.
const RUNNING: [Rule; 5] =
    [stalled::check, controller::check, reported::internal_error, crash_loop::check, barrier::restarting];

/// Puts why the group restarts before what every restart takes, and behind what keeps it from its end.
fn with_restart(mut causes: Vec<Finding>, restart: Vec<Finding>) -> Vec<Finding> {
    let takes_time = |cause: &Finding| barrier::is_of_every_restart(&cause.reason);
    let place = causes.iter().position(takes_time).unwrap_or(causes.len());
    causes.splice(place..place, restart);
    causes
}

/// Explains why the JobSet runs or does not run.
pub fn explain(facts: Facts) -> Explanation {
    use JobSetState::{Completed, Deleting, Failed, Invalid, ManagedElsewhere, NoJobs, Running, Suspended};

    let facts = &Facts {
        jobs: status::own(&facts.jobset, &facts.jobs),
        pods: status::own(&facts.jobset, &facts.pods),
        ..facts
    };
    let tree = status::report(&facts.jobset, &facts.jobs, &facts.pods, None);
    let (state, workers) = (tree.state, tree.workers);
    let all = |rules: &[Rule]| rules.iter().flat_map(|rule| rule(facts)).collect::<Vec<_>>();
    let findings = match state {
        Completed | Failed | Deleting | ManagedElsewhere | Suspended => {
            [outcome::check(facts, &tree), all(&SETTLED)].concat()
        }
        Invalid => all(&NOT_RECONCILED),
        NoJobs => all(&EMPTY),
        Running => [all(&RUNNING), all(&REMARKS)].concat(),
        _ => {
            let causes = [all(&CAUSES), barrier::waiting(facts, &tree)].concat();
            [with_restart(causes, barrier::restarting(facts)), all(&REMARKS)].concat()
        }
    };
    let runs = state.is_good();
    Explanation {
        name: facts.jobset.name_any(),
        namespace: facts.jobset.namespace().unwrap_or_default(),
        state,
        runs,
        jobs_ready: tree.jobs_ready,
        jobs: tree.jobs,
        workers,
        no_controller: controller::absence(facts)
            .filter(|_| !matches!(state, Completed | Failed | Deleting | ManagedElsewhere)),
        findings,
    }
}
