//! The values of labels. Each label has few of them.

use jobset_api::{FailurePolicyAction, RestartStrategy};
use jobset_rules::{ExitClass, Trigger};

/// Rules beyond this one share a label.
const LAST_RULE: usize = 31;

/// Results of JobSets.
pub(super) const COMPLETED: &str = "completed";
pub(super) const FAILED: &str = "failed";

pub(super) fn strategy(strategy: RestartStrategy) -> &'static str {
    match strategy {
        RestartStrategy::Recreate => "recreate",
        RestartStrategy::BlockingRecreate => "blocking_recreate",
        RestartStrategy::InPlaceRestart => "in_place",
    }
}

pub(super) fn action(action: FailurePolicyAction) -> &'static str {
    match action {
        FailurePolicyAction::FailJobSet => "fail_jobset",
        FailurePolicyAction::RestartJobSet => "restart_jobset",
        FailurePolicyAction::RestartJobSetAndIgnoreMaxRestarts => "restart_jobset_and_ignore_max_restarts",
        FailurePolicyAction::RestartJob => "restart_job",
        FailurePolicyAction::RestartJobAndIgnoreMaxRestarts => "restart_job_and_ignore_max_restarts",
        FailurePolicyAction::RecreateJob => "recreate_job",
        FailurePolicyAction::RestartReplicatedJob => "restart_replicated_job",
        FailurePolicyAction::FailJob => "fail_job",
    }
}

/// Reason and class of the exit code; the class is `none` if no container ended.
pub(super) fn trigger(trigger: Trigger) -> (&'static str, &'static str) {
    let class = match trigger {
        Trigger::ContainerExit(class) | Trigger::PodFailed(class) => exit_class(class),
        _ => "none",
    };
    (trigger.word(), class)
}

fn exit_class(class: ExitClass) -> &'static str {
    match class {
        ExitClass::Success => "0",
        ExitClass::Error => "1-127",
        ExitClass::Signal => "signal",
        ExitClass::OutOfMemory => "oom",
        ExitClass::Unknown => "unknown",
    }
}

pub(super) fn rule_index(rule: Option<usize>) -> String {
    match rule {
        None => "default".to_owned(),
        Some(index @ ..=LAST_RULE) => index.to_string(),
        Some(_) => format!("{}+", LAST_RULE + 1),
    }
}
