//! The end of a wait, and how far it is before.

use serde::Serialize;

use super::decision::Goal;
use crate::exit::Exit;
use crate::output::{BAD, GOOD, HEAD, Report, View, WAIT, paint};
use crate::status::{Barrier, JobSetState, JobSetTree, Workers};

/// How a wait has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitReport {
    /// Name of the JobSet.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// What the user waited for.
    #[serde(rename = "for")]
    pub goal: Goal,
    /// How it ended.
    pub outcome: WaitOutcome,
    /// Why it ended so.
    pub message: String,
    /// How long it took.
    pub seconds: f64,
    /// The last observed state; none if the JobSet was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<JobSetState>,
    /// Its workers, by its Jobs and Pods; none if no worker should run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<Workers>,
    /// Its barrier; none without in-place restart, or if no Pod is to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barrier: Option<Barrier>,
    /// Its group restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_restarts: Option<i32>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WaitOutcome {
    /// The JobSet got there.
    Reached,
    /// It cannot get there.
    Unreachable,
    /// It did not get there in time.
    TimedOut,
}

impl WaitOutcome {
    /// The exit code for this outcome.
    pub fn exit(self) -> Exit {
        match self {
            Self::Reached => Exit::Ok,
            Self::Unreachable => Exit::No,
            Self::TimedOut => Exit::Timeout,
        }
    }
}

impl Report for WaitReport {
    fn text(&self, _: &View) -> String {
        let style = match self.outcome {
            WaitOutcome::Reached => GOOD,
            WaitOutcome::Unreachable => BAD,
            WaitOutcome::TimedOut => WAIT,
        };
        let name = paint(HEAD, format!("{}/{}", self.namespace, self.name));
        format!("{name} {} ({:.1} s)\n", paint(style, &self.message), self.seconds)
    }
}

/// How far a JobSet is, in one line.
pub fn progress(tree: &JobSetTree) -> String {
    let mut parts = Vec::new();
    if let Some(Workers { expected, waiting }) = tree.workers {
        parts.push(format!("{} of {expected} workers run", expected - waiting));
    }
    if let Some(epochs) = tree.epochs {
        parts.push(format!("epoch {}", epochs.synced));
    }
    match &tree.barrier {
        Some(Barrier { lifted: true, .. }) => parts.push("barrier lifted".to_owned()),
        Some(Barrier { reported, expected, epoch, .. }) => {
            parts.push(format!("barrier closed ({reported} of {expected} Pods have reported epoch {epoch})"));
        }
        None => {}
    }
    match tree.restarts.total {
        0 => {}
        1 => parts.push("1 restart".to_owned()),
        restarts => parts.push(format!("{restarts} restarts")),
    }
    let details = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    format!("{}/{} {:?}{details}", tree.namespace, tree.name, tree.state)
}
