//! The end of a wait, and how far it is before.

use serde::Serialize;

use super::decision::Goal;
use crate::exit::Exit;
use crate::output::{BAD, GOOD, HEAD, Report, View, WAIT, paint};
use crate::status::{Barrier, JobSetState, JobSetTree, Workers};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitReport {
    pub name: String,
    pub namespace: String,
    #[serde(rename = "for")]
    pub goal: Goal,
    pub outcome: WaitOutcome,
    pub message: String,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_restarts: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WaitOutcome {
    Reached,
    Unreachable,
    TimedOut,
}

impl WaitOutcome {
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

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::status::report;
    use crate::tests::plain;

    fn tree() -> JobSetTree {
        let jobset = json!({"metadata": {"name": "train", "namespace": "ml"},
                            "spec": {"failurePolicy": {"restartStrategy": "InPlaceRestart"}, "replicatedJobs": []}});
        report(&serde_json::from_value(jobset).unwrap(), &[], &[], None)
    }

    #[test]
    fn progress_of_restart_tells_workers_epoch_and_barrier() {
        let mut tree = tree();
        tree.state = JobSetState::Restarting;
        tree.workers = Some(Workers { expected: 5000, waiting: 1880 });
        tree.epochs = tree.epochs.map(|epochs| crate::status::Epochs { synced: 4, deprecated: 4, ..epochs });
        tree.barrier = tree.epochs.map(|epochs| Barrier::of(epochs, 4100, 5000));
        tree.restarts.total = 4;
        let expected = "ml/train Restarting: 3120 of 5000 workers run, epoch 4, barrier closed (4100 of 5000 Pods have reported \
                        epoch 5), 4 restarts";
        assert_eq!(progress(&tree), expected);
    }

    #[test]
    fn progress_without_workers_tells_state() {
        let tree = JobSetTree { state: JobSetState::Suspended, workers: None, epochs: None, barrier: None, ..tree() };
        assert_eq!(progress(&tree), "ml/train Suspended");
    }

    #[rstest]
    #[case::reached(WaitOutcome::Reached, Exit::Ok)]
    #[case::unreachable(WaitOutcome::Unreachable, Exit::No)]
    #[case::timed_out(WaitOutcome::TimedOut, Exit::Timeout)]
    fn outcome_sets_exit_code_and_is_told(#[case] outcome: WaitOutcome, #[case] exit: Exit) {
        let report = WaitReport {
            name: "train".to_owned(),
            namespace: "ml".to_owned(),
            goal: Goal::Running,
            outcome,
            message: "runs".to_owned(),
            seconds: 7.25,
            state: None,
            workers: None,
            barrier: None,
            group_restarts: None,
        };
        assert_eq!((outcome.exit(), plain(&report)), (exit, "ml/train runs (7.2 s)\n".to_owned()));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["for"], &json["seconds"]), (&json!("running"), &json!(7.25)));
    }
}
