//! Suspension and resumption.

use jobset_api::{JobSet, conditions};

use super::elsewhere;
use super::report::ChangeOutcome;
use crate::status::queue;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    Suspend,
    Resume,
}

/// How far a JobSet is on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SuspensionState {
    /// `spec.suspend` has to change.
    Change,
    /// The controller has to follow; how far it is.
    Wait(String),
    Ended(ChangeOutcome, String),
}

impl Suspension {
    pub(super) fn suspend(self) -> bool {
        self == Self::Suspend
    }

    pub(super) fn verb(self) -> &'static str {
        if self.suspend() { "suspend" } else { "resume" }
    }

    /// What is left to do.
    pub(super) fn state(self, jobset: &JobSet) -> SuspensionState {
        if let Some(refusal) = elsewhere::refusal(jobset, self.verb()) {
            return SuspensionState::Ended(ChangeOutcome::Refused, refusal);
        }
        let status = jobset.status.clone().unwrap_or_default();
        if status.is_finished() {
            let what = if self.suspend() { "nothing of it runs" } else { "it does not run again" };
            return SuspensionState::Ended(ChangeOutcome::Refused, format!("has finished: {what}"));
        }
        let queue = queue(jobset);
        if jobset.spec.is_suspended() != self.suspend() {
            return match queue {
                Some(queue) if self == Self::Resume => SuspensionState::Ended(
                    ChangeOutcome::Refused,
                    format!("is in the queue {queue}, and Kueue resumes it: see `kubectl get workloads`"),
                ),
                _ => SuspensionState::Change,
            };
        }
        let is_suspended = conditions::is_true(&status.conditions, conditions::SUSPENDED);
        match (self, is_suspended) {
            (Self::Suspend, true) => {
                let queue = queue.map(|queue| format!("; the queue {queue} may resume it")).unwrap_or_default();
                SuspensionState::Ended(ChangeOutcome::Done, format!("is suspended{queue}"))
            }
            (Self::Resume, false) => SuspensionState::Ended(ChangeOutcome::Done, "is resumed".to_owned()),
            (Self::Suspend, false) => {
                let jobs = status.replicated_jobs_status.iter();
                let (all, suspended) =
                    (jobset.spec.global_replicas(), jobs.map(|it| i64::from(it.suspended)).sum::<i64>());
                SuspensionState::Wait(format!("{suspended} of {all} Jobs are suspended"))
            }
            (Self::Resume, true) => SuspensionState::Wait("the controller has not resumed its Jobs".to_owned()),
        }
    }

    /// What to say when the controller has not followed in time.
    pub(super) fn timed_out(self, name: &str, progress: &str) -> String {
        let asked = if self.suspend() { "is to be suspended" } else { "is to be resumed" };
        format!(
            "{asked}, and is not in time: {progress}. It goes on; `kubectl jobset explain {name}` says what it waits for"
        )
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::to_suspend(Suspension::Suspend, json!({}), "Change")]
    #[case::on_the_way(Suspension::Suspend, json!({"spec": {"suspend": true}, "status": {"replicatedJobsStatus": [{"name": "w", "suspended": 1}]}}), "1 of 3 Jobs are suspended")]
    #[case::suspended(Suspension::Suspend, json!({"spec": {"suspend": true}, "status": {"conditions": [{"type": "Suspended", "status": "True", "reason": "SuspendedJobs", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}), "Done, \"is suspended\"")]
    #[case::running(Suspension::Resume, json!({}), "Done, \"is resumed\"")]
    #[case::to_resume(Suspension::Resume, json!({"spec": {"suspend": true}}), "Change")]
    #[case::of_a_queue(Suspension::Resume, json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpu"}}, "spec": {"suspend": true}}), "is in the queue gpu, and Kueue resumes it")]
    #[case::elsewhere(Suspension::Suspend, json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}), "Refused, \"is managed by another controller (spec.managedBy): suspend it where it runs\"")]
    #[case::finished(Suspension::Resume, json!({"spec": {"suspend": true}, "status": {"terminalState": "Failed"}}), "Refused, \"has finished: it does not run again\"")]
    fn suspension_state_follows_spec_and_condition(
        #[case] wanted: Suspension,
        #[case] patch: Value,
        #[case] expected: &str,
    ) {
        let mut jobset = json!({"metadata": {"name": "train"}, "spec": {"replicatedJobs": [{"name": "w", "replicas": 3,
            "template": {"spec": {"template": {"spec": {"containers": []}}}}}]}});
        json_patch::merge(&mut jobset, &patch);
        let state = format!("{:?}", wanted.state(&serde_json::from_value(jobset).unwrap()));
        assert!(state.contains(expected), "{state}");
    }
}
