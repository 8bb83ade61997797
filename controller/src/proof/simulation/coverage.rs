//! What some lives go through: properties of what never happens prove nothing.

use jobset_api::conditions;

use super::cluster::trace;

/// Seeds within which everything has to happen.
const SEEDS: u64 = 2_000;

/// Lives of one kind that are enough.
const ENOUGH: usize = 5;

/// What has to happen, as the trace says it.
const EVENTS: [&str; 31] = [
    "in place, from epoch",
    "recreating all Jobs, attempt",
    "cannot come back in place",
    "its work is lost",
    "AgentAlone",
    "not counted by rule",
    conditions::WORKER_NOT_STARTED,
    "restarts of the JobSet, its replicatedJobs and its Jobs together",
    "restarts of the whole JobSet",
    "request: AnnotateRestartBudget",
    "maximum number of restarts of Job",
    "maximum number of restarts of replicatedJob",
    "jobset completed successfully",
    "all Jobs have finished",
    "is Failed DeadlineExceeded",
    "is Failed BackoffLimitExceeded",
    "is Failed PodFailurePolicy",
    "request: suspend",
    "request: resume",
    "is not at rest",
    "request: resize",
    "the status conflicts",
    "of the former controller",
    ": Lost",
    ": StoredUnanswered",
    "what is left of",
    "failed by the Pod garbage collector",
    "status: S 5",
    "finds no node",
    "no longer full",
    "the answer gets lost",
];

#[test]
fn everything_happens() {
    let mut missing = EVENTS.to_vec();
    for seed in 0..SEEDS {
        let lines = trace(seed, None);
        missing.retain(|what| !lines.iter().any(|line| line.contains(what)));
        if missing.is_empty() {
            return;
        }
    }
    panic!("not within {SEEDS} seeds: {missing:?}");
}

/// The group is resized while it has supervisors, whose containers go on from epoch to epoch.
#[test]
fn supervisors_go_through_a_resize() {
    let supervised_resize = |seed: &u64| {
        let lines = trace(*seed, None);
        let has = |what: &str| lines.iter().any(|line| line.contains(what));
        has("the supervisor of") && has("request: resize") && has("in place, from epoch") && has("status: S 3")
    };
    let found = (0..SEEDS).filter(supervised_resize).take(ENOUGH).count();
    assert_eq!(found, ENOUGH, "not within {SEEDS} seeds");
}
