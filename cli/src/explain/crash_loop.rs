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
    let mut what = format!(
        "The group keeps failing: {} times in a row, each time less than {} s after its workers began to run.",
        last.consecutive_failures,
        facts.jobset.spec.restart_backoff().stable.as_secs()
    );
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

/// The causes of the failures in a row, the newest first, as far as the status keeps them. Equal causes share a line.
fn causes(facts: &Facts) -> Vec<String> {
    let mut causes: Vec<(String, usize)> = Vec::new();
    let restarts = facts.jobset.status.iter().flat_map(|status| &status.recent_restarts).collect::<Vec<_>>();
    let row = restarts.iter().enumerate().rev().take_while(|(_, restart)| restart.consecutive_failures >= 1);
    for (place, restart) in row {
        let (number, message) = (restart.consecutive_failures, restart.message.as_str());
        let before = place.checked_sub(1).map_or(0, |place| restarts[place].consecutive_failures);
        // A restart that leaves the number as it is was no failure of a worker, but for the first of a new row.
        if number == before && (number > 1 || is_no_failure(message)) {
            continue;
        }
        let cause = without_epoch(message);
        match causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, times)) => *times += 1,
            None if message.is_empty() => {}
            None => causes.push((cause, 1)),
        }
        if number == 1 {
            break;
        }
    }
    let line = |(cause, times): (String, usize)| if times > 1 { format!("{times} times: {cause}") } else { cause };
    causes.into_iter().map(line).collect()
}

/// A cause without the epoch, which is another one each time.
fn without_epoch(message: &str) -> String {
    const WORDS: &str = " in epoch ";
    let Some((before, after)) = message.split_once(WORDS) else { return message.to_owned() };
    format!("{before}{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// Whether the controller says of a restart that a Pod was taken away, or that somebody asked for it.
fn is_no_failure(message: &str) -> bool {
    let says =
        [", disrupted", " was refused by node ", " was deleted in epoch ", " has restarted", "restart requested: "];
    says.iter().any(|words| message.contains(words))
}
