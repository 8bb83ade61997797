//! The group keeps failing soon after its workers began to run.

use std::fmt::Write as _;

use jobset_api::conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Facts, Finding};
use crate::output::until;

/// Names a crash loop: at least the last two failures came soon after the workers began to run, and they have not run well
/// since.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some(status) = &facts.jobset.status else { return Vec::new() };
    let Some(last) = status.recent_restarts.last().filter(|last| last.consecutive_failures > 1) else {
        return Vec::new();
    };
    let waits_until = waits_until(facts);
    if waits_until.is_none() && has_run_well(facts) {
        return Vec::new();
    }
    let mut what = format!("The group keeps failing: {} times in a row.", last.consecutive_failures);
    if let Some(until) = waits_until {
        let _ = write!(what, " It waits {until}, before restart {}.", last.number);
    }
    let advice = format!(
        "Fix the cause. `{}` shows all restarts. spec.failurePolicy.restartBackoff sets the waits.",
        facts.restarts_command()
    );
    vec![Finding::new("KeepsFailing", what, advice).with(causes(facts))]
}

/// Until when the group waits before it restarts, in words, if that is in the future.
pub(super) fn waits_until(facts: &Facts) -> Option<String> {
    let MicroTime(end) = facts.jobset.status.as_ref()?.barrier_until.as_ref()?;
    until(*end, facts.now)
}

/// Whether the workers have run for as long since the last restart as a group that runs well.
fn has_run_well(facts: &Facts) -> bool {
    let status = facts.jobset.status.as_ref();
    let completed = status.and_then(|status| status.recent_restarts.last()?.completion_time.clone());
    let stable = facts.jobset.spec.restart_backoff().stable;
    let is_long = |since: Timestamp| {
        SignedDuration::try_from(stable).is_ok_and(|stable| facts.now.duration_since(since) >= stable)
    };
    completed.is_some_and(|MicroTime(completed)| is_long(completed))
        && facts.condition(conditions::RESTARTING).is_none()
}

/// The causes of the recent restarts, the newest first. Equal causes share a line.
fn causes(facts: &Facts) -> Vec<String> {
    let mut causes: Vec<(&str, usize)> = Vec::new();
    let restarts = facts.jobset.status.iter().flat_map(|status| status.recent_restarts.iter().rev());
    for message in restarts.map(|restart| restart.message.as_str()).filter(|message| !message.is_empty()) {
        match causes.iter_mut().find(|(known, _)| *known == message) {
            Some((_, times)) => *times += 1,
            None => causes.push((message, 1)),
        }
    }
    let line = |(message, times): (&str, usize)| {
        if times > 1 { format!("{times} times: {message}") } else { message.to_owned() }
    };
    causes.into_iter().map(line).collect()
}
