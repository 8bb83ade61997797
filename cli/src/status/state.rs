//! The state of a JobSet in one word.

use jobset_api::{JobSet, JobSetStatus, conditions};
use serde::Serialize;

/// What a JobSet is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// It has succeeded.
    Completed,
    /// It has failed for good.
    Failed,
    /// It is being deleted.
    Deleting,
    /// Another controller carries it out.
    ManagedElsewhere,
    /// It is to have no Pods for now.
    Suspended,
    /// The controller leaves it alone, since it cannot be carried out.
    Invalid,
    /// The group restarts.
    Restarting,
    /// It has no Jobs to run: no replicatedJob has replicas.
    NoJobs,
    /// All its Jobs are ready or have succeeded.
    Running,
    /// Not all of its Jobs are ready.
    Starting,
}

impl State {
    /// Whether nothing needs to be explained: it runs, or has completed.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Completed | Self::Running)
    }

    /// Whether it will not run unless somebody does something.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Failed | Self::Invalid)
    }

    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Deleting => "Deleting",
            Self::ManagedElsewhere => "ManagedElsewhere",
            Self::Suspended => "Suspended",
            Self::Invalid => "Invalid",
            Self::Restarting => "Restarting",
            Self::NoJobs => "NoJobs",
            Self::Running => "Running",
            Self::Starting => "Starting",
        }
    }
}

/// What the JobSet is doing, by its own status.
pub fn state(jobset: &JobSet) -> State {
    let none = JobSetStatus::default();
    let status = jobset.status.as_ref().unwrap_or(&none);
    let is_true = |condition| conditions::is_true(&status.conditions, condition);
    let (ready, wanted) = jobs(jobset);
    if let Some(terminal) = conditions::terminal(&status.conditions) {
        if terminal.type_ == conditions::COMPLETED { State::Completed } else { State::Failed }
    } else if jobset.metadata.deletion_timestamp.is_some() {
        State::Deleting
    } else if jobset.spec.is_suspended() {
        State::Suspended
    } else if is_true(conditions::INVALID) {
        State::Invalid
    } else if is_true(conditions::RESTARTING) {
        State::Restarting
    } else if wanted == 0 {
        State::NoJobs
    } else if wanted > 0 && ready >= wanted {
        State::Running
    } else if jobset.is_managed_here() {
        State::Starting
    } else {
        State::ManagedElsewhere
    }
}

/// Jobs that are ready or have succeeded, and Jobs that there should be.
pub fn jobs(jobset: &JobSet) -> (i64, i64) {
    let groups = jobset.status.iter().flat_map(|status| &status.replicated_jobs_status);
    let ready = groups.map(|group| i64::from(group.ready) + i64::from(group.succeeded)).sum();
    (ready, jobset.spec.global_replicas())
}
