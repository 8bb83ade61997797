//! replicatedJobs that do not start yet, because others have to be ready or complete first (`startupPolicy`, `dependsOn`).

use jobset_api::{DependsOnStatus, conditions, event};
use k8s_openapi::jiff::SignedDuration;

use crate::barrier::begin_of_message;
use crate::reconciliation::{Reconciliation, first_few};

/// After this time, a wait is named: within a minute the condition says what for.
const LONG: SignedDuration = SignedDuration::from_secs(45);

/// A replicatedJob that does not start before another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StartWait {
    /// Its index in the specification.
    group: usize,
    other: usize,
    status: DependsOnStatus,
    /// How many Jobs of the other one have got so far.
    reached: i32,
}

impl StartWait {
    /// By the startup policy, the Jobs of `other` have to be ready first.
    pub(super) fn in_order(group: usize, other: usize, reached: i32) -> Self {
        Self { group, other, status: DependsOnStatus::Ready, reached }
    }

    fn describe(self, reconciliation: &Reconciliation<'_>) -> String {
        let Self { group, other, status, reached } = self;
        let (name, other) = (&reconciliation.groups()[group].name, &reconciliation.groups()[other]);
        let word = match status {
            DependsOnStatus::Ready => "ready",
            DependsOnStatus::Complete => "complete",
        };
        format!("{name} waits for {} to be {word}: {reached} of {} Jobs are", other.name, other.replicas())
    }

    /// Whether the replicatedJob lacks Jobs, or has suspended ones. One that has started goes on, whatever becomes of the others.
    fn holds(self, reconciliation: &Reconciliation<'_>) -> bool {
        let mut jobs = reconciliation.jobs_of(self.group);
        let replicas = usize::try_from(reconciliation.groups()[self.group].replicas()).unwrap_or_default();
        jobs.len() < replicas || jobs.any(|current| current.job.suspended && current.job.finished.is_none())
    }
}

/// The first dependency of a replicatedJob that is not met. `started` has the number of Jobs of each that are ready or have finished.
pub(super) fn of_dependencies(reconciliation: &Reconciliation<'_>, group: usize, started: &[i32]) -> Option<StartWait> {
    reconciliation.groups()[group].depends_on.iter().find_map(|dependency| {
        // One that does not exist is never met. Such a specification is invalid.
        let (other, target) = reconciliation.group_named(&dependency.name).unzip();
        let reached = match (other, dependency.status) {
            (None, _) => 0,
            (Some(_), DependsOnStatus::Complete) => {
                reconciliation.status_of(&dependency.name).map_or(0, |status| status.succeeded)
            }
            (Some(place), DependsOnStatus::Ready) => started[place],
        };
        let is_met = target.is_some_and(|target| reached >= target.replicas());
        (!is_met).then_some(StartWait { group, other: other.unwrap_or(group), status: dependency.status, reached })
    })
}

/// Sets the condition StartWaiting, and refreshes its message after 45 s and 1, 2, 4 ... minutes.
pub(super) fn report(reconciliation: &mut Reconciliation<'_>) {
    if reconciliation.is_suspended() {
        reconciliation.clear_condition(conditions::START_WAITING, conditions::DEPENDENCIES_MET, "jobset is suspended");
        return;
    }
    let waits: Vec<StartWait> =
        reconciliation.start_waits.iter().copied().filter(|wait| wait.holds(reconciliation)).collect();
    if waits.is_empty() {
        let message = "no replicatedJob waits for others";
        reconciliation.clear_condition(conditions::START_WAITING, conditions::DEPENDENCIES_MET, message);
        return;
    }
    let causes = [conditions::SUSPENDED, conditions::RESTART_BACKOFF, conditions::RESTARTING];
    let since = reconciliation.last_change_of(&causes).unwrap_or(reconciliation.now.0);
    let words = |age| format!("{age} after the start of the JobSet,");
    let Some(begin) = begin_of_message(reconciliation, conditions::START_WAITING, since, &[LONG], None, words) else {
        return;
    };
    let is_new = reconciliation.true_condition(conditions::START_WAITING).is_none();
    let described: Vec<String> = waits.iter().map(|wait| wait.describe(reconciliation)).collect();
    let message = format!("{begin} replicatedJobs wait for others: {}", first_few(&described));
    reconciliation.set_condition(conditions::START_WAITING, conditions::DEPENDENCIES_NOT_MET, &message);
    if is_new {
        reconciliation.note(event::START_WAITING, message);
    }
}
