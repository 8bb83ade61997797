//! What some lives go through: properties of what never happens prove nothing.

use super::cluster::trace;

/// Seeds within which everything has to happen.
const SEEDS: u64 = 6_000;

/// Lives of one kind that are enough.
const ENOUGH: usize = 5;

/// What has to happen, as the trace says it.
const EVENTS: [&str; 86] = [
    "in place, from epoch",
    "recreating all Jobs, attempt",
    "cannot come back in place",
    "its work is lost",
    "AgentAlone",
    "not counted by rule",
    "restarts of the JobSet, its replicatedJobs and its Jobs together",
    "restarts of the whole JobSet",
    "request: AnnotateRestartBudget",
    "maximum number of restarts of Job",
    "maximum number of restarts of replicatedJob",
    "jobset completed successfully",
    "all Jobs have finished",
    "longer than the specified deadline",
    "is Failed DeadlineExceeded",
    "is Failed BackoffLimitExceeded",
    "is Failed PodFailurePolicy",
    "meets its success policy",
    "is Complete SuccessPolicy",
    "and leaves",
    "takes its time to end",
    "of group 0 to 2147483647",
    "of group 0 to 0",
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
    "requests are slow",
    ", which fails",
    "is refused by its node",
    "its node refuses it after it has run",
    "RefusedByNode",
    "fails in its first init container",
    "FailsBeforeBarrier",
    "WorkerNotStarted",
    "its node restarts",
    "its sidecar ends again",
    "ContainersNotStarted",
    "these Pods cannot come back",
    ": CannotReturn",
    "NamesSettle",
    "is avoided, [\"",
    "somebody asks for moves after",
    " as a whole",
    ": Moved",
    "the scheduler keeps away from",
    "which is avoided",
    "finds no node that is not avoided",
    ": Unschedulable",
    "is cleared",
    "stream: the leader hears that",
    "hears an answer",
    "hears a broadcast",
    "stream: the connection of",
    "stream: a relay restarts",
    "stream: a relay loses the leader",
    "stream: a leader that was stopped wakes",
    "stream: nobody reaches a relay",
    "RestartRequested: in place",
    "RestartRequested: recreating",
    "of the JobSet, its replicatedJobs and its Jobs together: 0 of maxRestarts 0 are spent: restart requested",
    "a release that knows no requests",
    "is cordoned",
    "is uncordoned",
    ": LeavesCordoned",
    "NodesCordoned: in place",
    "(NodeLost: its node has been unreachable since",
    ": NodeLost",
    "is given up",
    "comes back",
    "ProgressStalled: in place",
    "straggles in epoch",
    "strikes for its stall",
    "is avoided for its stall",
    "as many as its annotation allows",
    "further step after",
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

/// Groups restart by reports that no annotation has told before, and their barriers are lifted by statements.
#[test]
fn the_stream_is_used() {
    let (mut before_annotations, mut after_annotations) = (0, 0);
    for seed in 0..SEEDS {
        let lines = trace(seed, None);
        for (number, line) in lines.iter().enumerate() {
            let Some((_, report)) = line.split_once("stream: the leader hears that ") else { continue };
            let Some((pod, epoch)) = report.split_once(" reports ") else { continue };
            let annotation = format!("agent of {pod} reports {epoch}: Stored");
            let is_known = lines[..number].iter().any(|line| line.contains(&annotation));
            *(if is_known { &mut after_annotations } else { &mut before_annotations }) += 1;
        }
        if before_annotations >= ENOUGH && after_annotations >= ENOUGH {
            return;
        }
    }
    panic!("not within {SEEDS} seeds: {before_annotations} early reports, {after_annotations} late ones");
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
