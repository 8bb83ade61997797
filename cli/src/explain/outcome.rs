//! It has ended; or its next failure will be its last.

use jobset_api::conditions;

use super::{Facts, Finding};
use crate::status;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let status = facts.status();
    let Some(terminal) = conditions::terminal(&status.conditions) else { return Vec::new() };
    let message = if terminal.message.is_empty() { &terminal.reason } else { &terminal.message };
    if terminal.type_ == conditions::COMPLETED {
        let advice = match facts.jobset.spec.ttl_seconds_after_finished {
            Some(ttl) => format!("Nothing: it is deleted {ttl} s after its end (ttlSecondsAfterFinished)."),
            None => "Nothing. It stays until somebody deletes it: set spec.ttlSecondsAfterFinished.".to_owned(),
        };
        return vec![Finding::new("Completed", format!("It has completed: {message}."), advice)];
    }
    let name = facts.jobset.metadata.name.as_deref().unwrap_or_default();
    let advice = match terminal.reason.as_str() {
        conditions::REACHED_MAX_RESTARTS => format!(
            "See `{}` for what failed each time and mend that, or raise spec.failurePolicy.maxRestarts; then delete \
             the JobSet and create it again.",
            facts.kubectl(&format!("jobset restarts {name}"))
        ),
        conditions::WORKER_NOT_STARTED => {
            "Mend the init containers or the agent of the named Pod, or raise spec.failurePolicy.maxRestarts; then \
             delete the JobSet and create it again."
                .to_owned()
        }
        conditions::FAIL_JOB_SET_ACTION => {
            "A rule of spec.failurePolicy asks for this end. Mend what failed, then delete \
             the JobSet and create it again."
                .to_owned()
        }
        conditions::FAILED_JOBS => {
            "Mend what failed, then delete the JobSet and create it again; with spec.failurePolicy \
             it would have restarted."
                .to_owned()
        }
        _ => "Mend what failed, then delete the JobSet and create it again.".to_owned(),
    };
    let what = format!("It has failed for good ({}).", terminal.reason);
    vec![Finding::new("Failed", what, advice).with(vec![message.clone()])]
}

/// No restart is left.
pub(super) fn budget(facts: &Facts) -> Vec<Finding> {
    let restarts = status::Restarts::of(&facts.jobset);
    if restarts.max == 0 || restarts.counted < restarts.max {
        return Vec::new();
    }
    let more = match &restarts.counted_of {
        None => "One more failure that counts".to_owned(),
        Some(whose) => format!("One more restart of {whose} that counts"),
    };
    let what = format!("No restart is left: {}. {more} fails it for good.", restarts.spent());
    let name = facts.jobset.metadata.name.as_deref().unwrap_or_default();
    let advice = format!(
        "See `{}` for what keeps failing. spec.failurePolicy cannot be changed while it exists.",
        facts.kubectl(&format!("jobset restarts {name}"))
    );
    vec![Finding::new("BudgetSpent", what, advice)]
}
