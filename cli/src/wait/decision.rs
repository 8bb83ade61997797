//! Decides whether a wait is over.

use clap::ValueEnum;
use jobset_api::conditions;
use serde::Serialize;

use crate::output::one_line;
use crate::status::{JobSetState, JobSetTree};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// All workers run, in one epoch.
    Running,
    /// One more group restart than before has ended: all workers run again.
    Restarted,
    /// The JobSet has completed or failed.
    Finished,
}

/// What the JobSet was when the command began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitBaseline {
    /// Group restarts that had ended.
    pub ended_restarts: i32,
}

impl WaitBaseline {
    /// The baseline of a JobSet. A restart that is under way has not ended, so its end is an end that a user waits for.
    pub fn of(tree: &JobSetTree) -> Self {
        let under_way = i32::from(conditions::is_true(&tree.conditions, conditions::RESTARTING));
        Self { ended_restarts: tree.restarts.total.saturating_sub(under_way).max(0) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitDecision {
    /// The JobSet is not there yet, but may get there.
    Wait,
    /// It is there. The text says how.
    Reached(String),
    /// It cannot get there. The text says why.
    Unreachable(String),
}

impl WaitDecision {
    /// Decides for a JobSet, or for one that was deleted.
    pub fn of(goal: Goal, baseline: &WaitBaseline, tree: Option<&JobSetTree>) -> Self {
        let Some(tree) = tree else { return Self::Unreachable("was deleted".to_owned()) };
        let has_restarted = tree.restarts.total > baseline.ended_restarts;
        match (tree.state, goal) {
            (JobSetState::Deleting, _) => Self::Unreachable("is being deleted".to_owned()),
            (JobSetState::Failed, _) => Self::Unreachable(ended(tree, "has failed")),
            (JobSetState::Completed, Goal::Finished) => Self::Reached(ended(tree, "has completed")),
            // The workers of a short JobSet may end before anyone sees them run again.
            (JobSetState::Completed, Goal::Restarted) if has_restarted => {
                Self::Reached(ended(tree, "has restarted and completed"))
            }
            (JobSetState::Completed, _) => Self::Unreachable(ended(tree, "has completed")),
            (JobSetState::Running, Goal::Running) => Self::Reached(runs(tree, "runs")),
            (JobSetState::Running, Goal::Restarted) if has_restarted => Self::Reached(runs(tree, "runs again")),
            _ => Self::Wait,
        }
    }
}

/// How the JobSet runs, such as `runs: all 2 workers run in epoch 3`.
fn runs(tree: &JobSetTree, how: &str) -> String {
    let workers = tree.workers.map_or_else(
        || "its workers run".to_owned(),
        |workers| match workers.expected {
            1 => "its worker runs".to_owned(),
            expected => format!("all {expected} workers run"),
        },
    );
    let epoch = tree.epochs.map(|epochs| format!(" in epoch {}", epochs.synced)).unwrap_or_default();
    format!("{how}: {workers}{epoch}")
}

/// How the JobSet has ended, with the message of its last condition.
fn ended(tree: &JobSetTree, how: &str) -> String {
    match conditions::terminal(&tree.conditions) {
        Some(end) if !end.message.is_empty() => format!("{how} ({}): {}", end.reason, one_line(&end.message)),
        Some(end) => format!("{how} ({})", end.reason),
        None => how.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::status::{Epochs, RestartCount, Workers, report};

    /// A JobSet in this state with two workers and a number of group restarts.
    fn tree(state: JobSetState, restarts: i32) -> JobSetTree {
        let jobset = json!({"metadata": {"name": "train", "namespace": "ml"}, "spec": {"replicatedJobs": []}});
        let tree = report(&serde_json::from_value(jobset).unwrap(), &[], &[], None);
        let epochs = Epochs { synced: restarts + 1, deprecated: restarts, ..Epochs::default() };
        JobSetTree {
            state,
            restarts: RestartCount { total: restarts, ..RestartCount::default() },
            workers: Some(Workers { expected: 2, waiting: 0 }),
            epochs: Some(epochs),
            ..tree
        }
    }

    fn with(tree: JobSetTree, type_: &str, message: &str) -> JobSetTree {
        let condition = json!({"type": type_, "status": "True", "reason": "Because", "message": message,
                               "lastTransitionTime": "2026-11-22T10:00:00Z"});
        let condition: Condition = serde_json::from_value(condition).unwrap();
        JobSetTree { conditions: vec![condition], ..tree }
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Outcome {
        Waits,
        Reached,
        Unreachable,
    }

    #[rstest]
    #[case::starts(Goal::Running, JobSetState::Starting, 0, Outcome::Waits)]
    #[case::runs(Goal::Running, JobSetState::Running, 0, Outcome::Reached)]
    #[case::runs_by_its_status_alone(Goal::Running, JobSetState::NotReady, 0, Outcome::Waits)]
    #[case::restarts(Goal::Running, JobSetState::Restarting, 1, Outcome::Waits)]
    #[case::suspended(Goal::Running, JobSetState::Suspended, 0, Outcome::Waits)]
    #[case::invalid_until_mended(Goal::Running, JobSetState::Invalid, 0, Outcome::Waits)]
    #[case::has_no_jobs_until_scaled(Goal::Running, JobSetState::NoJobs, 0, Outcome::Waits)]
    #[case::too_late(Goal::Running, JobSetState::Completed, 0, Outcome::Unreachable)]
    #[case::failed(Goal::Running, JobSetState::Failed, 0, Outcome::Unreachable)]
    #[case::goes(Goal::Running, JobSetState::Deleting, 0, Outcome::Unreachable)]
    #[case::runs_as_before(Goal::Restarted, JobSetState::Running, 2, Outcome::Waits)]
    #[case::restart_begins(Goal::Restarted, JobSetState::Restarting, 3, Outcome::Waits)]
    #[case::runs_again(Goal::Restarted, JobSetState::Running, 3, Outcome::Reached)]
    #[case::runs_again_by_its_status_alone(Goal::Restarted, JobSetState::NotReady, 3, Outcome::Waits)]
    #[case::restarted_twice(Goal::Restarted, JobSetState::Running, 4, Outcome::Reached)]
    #[case::restarted_and_completed(Goal::Restarted, JobSetState::Completed, 3, Outcome::Reached)]
    #[case::completed_without(Goal::Restarted, JobSetState::Completed, 2, Outcome::Unreachable)]
    #[case::failed_in_restart(Goal::Restarted, JobSetState::Failed, 3, Outcome::Unreachable)]
    #[case::works(Goal::Finished, JobSetState::Running, 0, Outcome::Waits)]
    #[case::completed(Goal::Finished, JobSetState::Completed, 0, Outcome::Reached)]
    #[case::failed_for_good(Goal::Finished, JobSetState::Failed, 0, Outcome::Unreachable)]
    fn decision_follows_from_state_and_restarts(
        #[case] goal: Goal,
        #[case] state: JobSetState,
        #[case] restarts: i32,
        #[case] expected: Outcome,
    ) {
        let baseline = WaitBaseline { ended_restarts: 2 };
        let outcome = match WaitDecision::of(goal, &baseline, Some(&tree(state, restarts))) {
            WaitDecision::Wait => Outcome::Waits,
            WaitDecision::Reached(_) => Outcome::Reached,
            WaitDecision::Unreachable(_) => Outcome::Unreachable,
        };
        assert_eq!(outcome, expected);
    }

    #[rstest]
    #[case::none_yet(JobSetState::Running, 0, false, 0)]
    #[case::two_have_ended(JobSetState::Running, 2, false, 2)]
    #[case::second_is_under_way(JobSetState::Restarting, 2, true, 1)]
    #[case::suspended_during_the_second(JobSetState::Suspended, 2, true, 1)]
    #[case::first_start(JobSetState::Starting, 0, true, 0)]
    fn baseline_leaves_out_restart_under_way(
        #[case] state: JobSetState,
        #[case] restarts: i32,
        #[case] restarting: bool,
        #[case] expected: i32,
    ) {
        let tree = tree(state, restarts);
        let tree = if restarting { with(tree, conditions::RESTARTING, "in place") } else { tree };
        assert_eq!(WaitBaseline::of(&tree), WaitBaseline { ended_restarts: expected });
    }

    #[test]
    fn decision_texts_say_how_and_why() {
        let none = WaitBaseline::default();
        let text = |goal, tree: Option<&JobSetTree>| match WaitDecision::of(goal, &none, tree) {
            WaitDecision::Reached(text) | WaitDecision::Unreachable(text) => text,
            WaitDecision::Wait => "waits".to_owned(),
        };
        assert_eq!(text(Goal::Running, Some(&tree(JobSetState::Running, 0))), "runs: all 2 workers run in epoch 1");
        assert_eq!(
            text(Goal::Restarted, Some(&tree(JobSetState::Running, 1))),
            "runs again: all 2 workers run in epoch 2"
        );
        let failed = with(tree(JobSetState::Failed, 0), conditions::FAILED, "Pod a\nfailed");
        assert_eq!(text(Goal::Finished, Some(&failed)), "has failed (Because): Pod a failed");
        let completed = with(tree(JobSetState::Completed, 0), conditions::COMPLETED, "");
        assert_eq!(text(Goal::Finished, Some(&completed)), "has completed (Because)");
        assert_eq!(text(Goal::Finished, None), "was deleted");
    }
}
