//! Back-off between group restarts: a group that keeps failing soon after it began to run waits before it runs again.
//!
//! The status keeps the last restarts and the end of the wait, so that a change of leader forgets neither. In place, the group
//! waits at the barrier. If its Jobs are recreated, the new Jobs are created after the wait.

use std::time::Duration;

use jobset_api::{LaterFields, RecentRestart, RestartStrategy, conditions, event};
use jobset_store::pods::shorten;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::cause::{Cause, Counting};
use crate::reconciliation::Reconciliation;
use crate::types::{Fact, Trigger};

/// Number of restarts that the status keeps.
const KEPT: usize = 5;
/// Maximum length of the message of a kept restart, in bytes. Every agent receives the status.
const LONGEST_MESSAGE: usize = 256;
/// Of this many failures in a row, each restart has its Events. Of more, only those whose number is a power of two.
const ANNOUNCED: i32 = 4;

/// A time as the status stores it: in microseconds.
pub(super) fn micro_time(time: Timestamp) -> MicroTime {
    MicroTime(Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time))
}

/// Records a restart that begins, and makes the group wait if it keeps failing. Called before the epochs change.
///
/// A restart that has been counted already is the same restart by another strategy.
pub(super) fn record(
    reconciliation: &mut Reconciliation<'_>,
    strategy: RestartStrategy,
    counting: Counting,
    cause: &Cause,
) {
    let number = reconciliation.status.group_restarts;
    let message = shorten(&cause.message, LONGEST_MESSAGE);
    if counting == Counting::Already {
        let last = reconciliation.status.recent_restarts.last_mut();
        if let Some(last) = last.filter(|last| last.number == number && last.completion_time.is_none()) {
            (last.strategy, last.message) = (strategy, message);
        }
        return;
    }
    let began = began(reconciliation, cause.failed_at);
    let before = failures_before(reconciliation, began);
    let consecutive_failures = match cause.trigger {
        Trigger::Requested => 0,
        // What takes a Pod away says nothing of its worker.
        _ if cause.is_loss => before,
        _ => before.saturating_add(1),
    };
    let restarts = &mut reconciliation.status.recent_restarts;
    restarts.push(RecentRestart {
        number,
        strategy,
        counted: counting == Counting::Counted,
        consecutive_failures,
        start_time: micro_time(began),
        completion_time: None,
        message,
        later: LaterFields::new(),
    });
    let surplus = restarts.len().saturating_sub(KEPT);
    restarts.drain(..surplus);
    if !cause.is_loss {
        wait(reconciliation, consecutive_failures, began, strategy);
    }
}

/// When a restart began: when the worker ended, if that was observed.
///
/// Clocks of nodes differ, and the kubelet writes whole seconds. A restart begins neither in the future, nor before its workers
/// began to run, nor before the last restart began.
fn began(reconciliation: &Reconciliation<'_>, failed_at: Option<Timestamp>) -> Timestamp {
    let last = reconciliation.status.recent_restarts.last();
    let earliest = began_to_run(reconciliation).max(last.map(|last| &last.start_time));
    let failed_at = failed_at.unwrap_or(reconciliation.now.0);
    earliest.map_or(failed_at, |MicroTime(earliest)| failed_at.max(*earliest)).min(reconciliation.now.0)
}

/// When the present restart began, of those that the status keeps.
pub(super) fn start_time(reconciliation: &Reconciliation<'_>) -> Option<Timestamp> {
    let status = &reconciliation.status;
    let last = status.recent_restarts.last().filter(|last| last.number == status.group_restarts)?;
    Some(last.start_time.0)
}

/// When the workers began to run, if they run. A group that fails before its barrier is lifted has not run at all.
pub(super) fn began_to_run<'a>(reconciliation: &'a Reconciliation<'_>) -> Option<&'a MicroTime> {
    let status = &reconciliation.status;
    if reconciliation.in_place() {
        status.epoch_transition_time.as_ref().filter(|_| !status.epochs().is_closed())
    } else {
        status.recent_restarts.last()?.completion_time.as_ref()
    }
}

/// Number of failures in a row before the restart that began at `end`. 0 if the workers had run well until then.
fn failures_before(reconciliation: &Reconciliation<'_>, end: Timestamp) -> i32 {
    let Some(last) = reconciliation.status.recent_restarts.last() else { return 0 };
    let stable = seconds(reconciliation.observed.jobset.spec.restart_backoff().stable);
    let has_run_well =
        began_to_run(reconciliation).is_some_and(|MicroTime(began)| end.duration_since(*began) >= stable);
    if has_run_well { 0 } else { last.consecutive_failures }
}

/// Makes the group wait before it runs again, if it has failed often enough: from the time at which the restart began.
fn wait(reconciliation: &mut Reconciliation<'_>, failures: i32, began: Timestamp, strategy: RestartStrategy) {
    let backoff = reconciliation.observed.jobset.spec.restart_backoff();
    let wait = backoff.wait(failures, strategy).min(reconciliation.settings.longest_restart_backoff);
    let Some(until) = began.checked_add(seconds(wait)).ok().filter(|_| !wait.is_zero()) else { return };
    // Strategies wait differently, and a wait that is under way does not get shorter.
    let MicroTime(until) = micro_time(until.max(waits_until(reconciliation).unwrap_or(until)));
    reconciliation.status.barrier_until = Some(MicroTime(until));
    let message = format!(
        "the group has failed {failures} times in a row, each time less than {} s after its workers began to run; restart {} \
         waits {} s, until {until:.3}",
        backoff.stable.as_secs(),
        reconciliation.status.group_restarts,
        until.duration_since(began).as_secs(),
    );
    reconciliation.set_condition(conditions::RESTART_BACKOFF, conditions::KEEPS_FAILING, &message);
    if is_announced(reconciliation) {
        reconciliation.warn(event::RESTART_BACKOFF, message);
    }
    reconciliation.facts.push(Fact::BackedOff);
    reconciliation.requeue_at(until);
}

/// Ends the wait when its time has come, or when the JobSet is suspended.
pub(super) fn release(reconciliation: &mut Reconciliation<'_>) {
    limit(reconciliation);
    if reconciliation.is_suspended() {
        end_wait(reconciliation, "jobset is suspended");
    } else if let Some(until) = waits_until(reconciliation) {
        reconciliation.requeue_at(until);
    } else {
        end_wait(reconciliation, "the wait is over");
    }
}

/// Limits a wait that ends too late, because the clock of the leader that has written it was ahead, to the longest wait from
/// now on.
fn limit(reconciliation: &mut Reconciliation<'_>) {
    let latest = reconciliation.now.0.saturating_add(seconds(reconciliation.settings.longest_restart_backoff));
    let latest = micro_time(latest.unwrap_or(Timestamp::MAX));
    if let Some(until) = reconciliation.status.barrier_until.as_mut().filter(|until| **until > latest) {
        *until = latest;
    }
}

pub(super) fn end_wait(reconciliation: &mut Reconciliation<'_>, why: &str) {
    reconciliation.status.barrier_until = None;
    reconciliation.clear_condition(conditions::RESTART_BACKOFF, conditions::BACKOFF_OVER, why);
}

/// Until when the group waits, if that is in the future (`status.barrierUntil`).
pub(super) fn waits_until(reconciliation: &Reconciliation<'_>) -> Option<Timestamp> {
    let MicroTime(until) = reconciliation.status.barrier_until.as_ref()?;
    Some(*until).filter(|until| *until > reconciliation.now.0)
}

/// All Jobs are ready again.
pub(super) fn complete(reconciliation: &mut Reconciliation<'_>) {
    let now = micro_time(reconciliation.now.0);
    if let Some(last) = reconciliation.status.recent_restarts.last_mut() {
        last.completion_time.get_or_insert(now);
    }
}

/// Whether the last restart has Events. A group that restarts 18 times a second has few of them.
pub(super) fn is_announced(reconciliation: &Reconciliation<'_>) -> bool {
    let last = reconciliation.status.recent_restarts.last();
    last.is_none_or(|last| {
        let failures = last.consecutive_failures;
        failures <= ANNOUNCED || u32::try_from(failures).is_ok_and(u32::is_power_of_two)
    })
}

pub(super) fn seconds(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
