//! The JobSet has ended, or has no restart left.

use jobset_api::{conditions, labels};
use kube::ResourceExt as _;

use super::{Facts, Finding};
use crate::status::{self, JobSetTree, PodNode};

/// The most Pods of failed workers in a finding.
const SHOWN: usize = 5;

pub(super) fn check(facts: &Facts, tree: &JobSetTree) -> Vec<Finding> {
    let status = facts.jobset.status.as_ref();
    let Some(terminal) = status.and_then(|status| conditions::terminal(&status.conditions)) else { return Vec::new() };
    let message = if terminal.message.is_empty() { &terminal.reason } else { &terminal.message };
    if terminal.type_ == conditions::COMPLETED {
        let advice = match facts.jobset.spec.ttl_seconds_after_finished {
            Some(ttl) => format!("None needed: the JobSet is deleted {ttl} s after its end (ttlSecondsAfterFinished)."),
            None => "None needed. To delete a JobSet after its end, set spec.ttlSecondsAfterFinished.".to_owned(),
        };
        return vec![Finding::new("Completed", format!("The JobSet has completed: {message}."), advice)];
    }
    let advice = match terminal.reason.as_str() {
        conditions::REACHED_MAX_RESTARTS => format!(
            "See the causes in `{}` and fix them; then delete the JobSet and create it again. While a JobSet runs, its \
             annotation {} allows more restarts.",
            facts.restarts_command(),
            labels::ADDITIONAL_RESTARTS
        ),
        conditions::WORKER_NOT_STARTED => {
            "Fix the init containers or the agent of the named Pod; then delete the JobSet and create it again."
                .to_owned()
        }
        conditions::DEADLINE_EXCEEDED => deadline_advice(facts),
        conditions::FAIL_JOB_SET_ACTION => {
            "A rule of spec.failurePolicy has the action FailJobSet. Fix the cause, then delete \
             the JobSet and create it again."
                .to_owned()
        }
        conditions::FAILED_JOBS => {
            "Fix the cause, then delete the JobSet and create it again. With spec.failurePolicy \
             it restarts instead."
                .to_owned()
        }
        _ => "Fix the cause, then delete the JobSet and create it again.".to_owned(),
    };
    let what = format!("The JobSet has failed and does not restart ({}).", terminal.reason);
    vec![Finding::new("Failed", what, advice).with([vec![message.clone()], evidence(facts, tree)].concat())]
}

/// The deadline counts from the last resume or restart of the whole JobSet.
fn deadline_advice(facts: &Facts) -> String {
    let active = facts.jobset.spec.active_deadline_seconds.map(|seconds| format!(" is {seconds}")).unwrap_or_default();
    format!(
        "spec.activeDeadlineSeconds{active}. The time began at status.startTime: the last resume, or the last restart of the whole \
         JobSet. If the JobSet needs more time, create it again with a higher value. While a JobSet runs, the field can change."
    )
}

/// The Pods of failed workers that stay after the JobSet has failed, with the commands that show their logs.
fn evidence(facts: &Facts, tree: &JobSetTree) -> Vec<String> {
    let pods = tree.replicated_jobs.iter().flat_map(|group| &group.jobs).flat_map(|job| &job.pods);
    let failed = pods.filter(|pod| pod.stays_as_evidence());
    let line = |pod: &PodNode| {
        let exit = pod.last_exit.as_ref().map(|exit| format!(" ({exit})")).unwrap_or_default();
        format!("Pod {} has failed{exit}, and stays: {}", pod.name, facts.kubectl(&format!("logs {}", pod.name)))
    };
    failed.take(SHOWN).map(line).collect()
}

/// No restart is left: the next failure fails the JobSet.
pub(super) fn budget(facts: &Facts) -> Vec<Finding> {
    let restarts = status::RestartCount::of(&facts.jobset);
    if restarts.max == 0 || restarts.counted < restarts.max {
        return Vec::new();
    }
    let more = match &restarts.counted_of {
        None => "The next failure that counts".to_owned(),
        Some(whose) => format!("The next restart of {whose} that counts"),
    };
    let what = format!("No restart is left: {}. {more} fails the JobSet.", restarts.spent());
    let advice = format!(
        "See the causes in `{}`. To allow N more restarts, run `{}`.",
        facts.restarts_command(),
        facts.kubectl(&format!(
            "annotate jobset {} {}=N --overwrite",
            facts.jobset.name_any(),
            labels::ADDITIONAL_RESTARTS
        ))
    );
    vec![Finding::new("BudgetSpent", what, advice)]
}
