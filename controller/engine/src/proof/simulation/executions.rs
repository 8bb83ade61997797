//! How long a JobSet may be active, and how often it was executed (KEP-1186, KEP-1282).

use jobset_api::{JobSet, JobSetStatus, conditions};
use jobset_rules::Action;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;

use super::cluster::SimulatedCluster;
use super::jobs::finished;
use super::requests::name;
use crate::proof::{CheckResult, Property, ensure};

impl SimulatedCluster {
    /// The status that has just been written over another one: it fails by the deadline only when that has passed, and stays
    /// so.
    pub(super) fn check_deadline(&self, before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
        let text = || super::controller::brief(after);
        if failed_by_deadline(before) {
            let stays = failed_by_deadline(after) && !conditions::is_true(&after.conditions, conditions::COMPLETED);
            return ensure(stays, Property::Deadline, || format!("it has failed by its deadline, and then {}", text()));
        }
        let is_true = !failed_by_deadline(after) || self.deadline_has_passed(after);
        ensure(is_true, Property::Deadline, || format!("its deadline has not passed: {}", text()))
    }

    /// A controller that has observed that the deadline has passed starts no Job.
    pub(super) fn check_no_start(action: &Action, base: &JobSet) -> CheckResult {
        let starts = matches!(action, Action::CreateJob(_) | Action::ResumeJob { .. });
        let has_failed = base.status.as_ref().is_some_and(failed_by_deadline);
        ensure(!starts || !has_failed, Property::Deadline, || {
            format!("it has failed by its deadline, and the controller requests: {}", name(action))
        })
    }

    /// At rest, no Job and no worker of a JobSet runs that has failed by its deadline.
    pub(super) fn check_nothing_runs(&self) -> CheckResult {
        if !failed_by_deadline(&self.api.status()) {
            return Ok(());
        }
        let jobs = self.api.jobs.iter().filter(|(_, it)| finished(&it.job).is_none()).map(|(name, _)| name);
        let workers = self.machines.values().filter(|machine| machine.runs()).map(|machine| &machine.pod);
        let left: Vec<&String> = jobs.chain(workers).collect();
        ensure(left.is_empty(), Property::Deadline, || format!("it has failed by its deadline, and {left:?} run"))
    }

    /// Whether the JobSet is active for longer than it may be.
    pub(super) fn deadline_has_passed(&self, status: &JobSetStatus) -> bool {
        let spec = &self.api.jobset.spec;
        let is_on = self.scenario.settings.gates.job_set_active_deadline_seconds && !spec.is_suspended();
        let (Some(seconds), Some(Time(start))) = (spec.active_deadline_seconds, &status.start_time) else {
            return false;
        };
        is_on && start.checked_add(SignedDuration::from_secs(seconds)).is_ok_and(|due| due <= self.now().0)
    }

    /// The number of executions rises by one for each resume and for each restart of all Jobs, and by nothing else.
    pub(super) fn check_execution_attempts(&self, before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
        let is_on = self.scenario.settings.gates.execution_attempts_tracking;
        let recreations = i32::from(after.restarts > before.restarts);
        let resumes = i32::from(before.execution_ended && !after.execution_ended);
        let holds = match (before.execution_attempts, after.execution_attempts) {
            (None, None) => true,
            (None, Some(first)) => is_on && first == after.restarts,
            (Some(attempts), Some(next)) => is_on && next == attempts + recreations + resumes,
            (Some(_), None) => false,
        };
        ensure(holds, Property::ExecutionAttempts, || {
            let attempts = [before, after].map(|status| status.execution_attempts);
            format!("{attempts:?} with {recreations} restarts of all Jobs and {resumes} resumes")
        })
    }
}

fn failed_by_deadline(status: &JobSetStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions
        .any(|it| it.type_ == conditions::FAILED && it.status == "True" && it.reason == conditions::DEADLINE_EXCEEDED)
}
