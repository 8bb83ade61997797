//! Reports a group that waits at the barrier for long, with the Pods that it waits for.

use jobset_api::{conditions, event};
use jobset_store::pods::{JobPods, PodView};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::members::{self, Slots};
use crate::reconciliation::{Reconciliation, by_name, name_few};
use crate::{backoff, settle, why};

/// After this time at the barrier, an agent that runs and has not reported is silent.
const SILENT: SignedDuration = SignedDuration::from_secs(15);
/// After this time at the barrier, a Pod that has not reported is missing: within a minute the condition names what it waits for.
const MISSING: SignedDuration = SignedDuration::from_secs(45);
/// The unit of the time that the message says.
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// Sets the condition BarrierWaiting, and refreshes its message after 45 s and 1, 2, 4 ... minutes.
pub(crate) fn report_wait(reconciliation: &mut Reconciliation<'_>) {
    if settle::report(reconciliation) {
        return;
    }
    let suspended = reconciliation.is_suspended();
    let waits = reconciliation.in_place()
        && !suspended
        && reconciliation.status.epochs().is_closed()
        && backoff::waits_until(reconciliation).is_none();
    let slots = if waits { members::slots(reconciliation) } else { Slots::default() };
    let next = reconciliation.next_epoch();
    let arrived = slots.at(next);
    let leaving = if waits && slots.missing(next) == 0 { members::leaving(reconciliation) } else { None };
    if slots.open <= arrived && leaving.is_none() {
        let message = if suspended { "jobset is suspended" } else { "all Pods have reached the barrier" };
        reconciliation.clear_condition(conditions::BARRIER_WAITING, conditions::BARRIER_REACHED, message);
        return;
    }
    let since = waits_since(reconciliation);
    let words = |age| format!("the group waits at the barrier for {age}");
    let steps = [SILENT, MISSING];
    let condition = conditions::BARRIER_WAITING;
    let adds = why::warning(reconciliation, since, |pod| pod.epoch.number() != Some(next));
    let Some(begin) = begin_of_message(reconciliation, condition, since, &steps, adds, words) else { return };
    let stored_reason = reconciliation.true_condition(conditions::BARRIER_WAITING).map(|it| it.reason.clone());
    let silent = by_name(unreported_pods(reconciliation).filter(|pod| is_silent(reconciliation, pod)));
    let (reason, what) = if let Some(pod) = leaving {
        let what = format!(
            "Pod {} is outside of the size of the JobSet, and could still start its worker; the Pod has to be deleted first",
            pod.name
        );
        (conditions::PODS_LEAVING, what)
    } else if silent.is_empty() && reconciliation.now.0.duration_since(since) < MISSING {
        let later = unreported_pods(reconciliation).filter_map(silent_at).filter(|at| *at > reconciliation.now.0);
        if let Some(next) = later.min() {
            reconciliation.requeue_at(next);
        }
        return;
    } else if silent.is_empty() {
        let missing = by_name(missing_pods(reconciliation));
        if stored_reason.is_none() && why::awaits_answer(reconciliation, &missing, since, MISSING) {
            return;
        }
        let without_pod = (slots.open - arrived).saturating_sub(missing.len());
        let mut what = Vec::new();
        if !missing.is_empty() {
            what.push(format!("{} of {} Pods have not reported: {}", missing.len(), slots.open, name_few(&missing)));
            what.extend(why::of_first(reconciliation, &missing, since));
        }
        if without_pod > 0 {
            what.push(format!("{without_pod} of {} Pods do not exist or are being deleted", slots.open));
        }
        (conditions::PODS_MISSING, what.join("; "))
    } else {
        let what = format!(
            "the agents of these Pods run and have not reported an epoch: {}; look at their logs, and check that their \
             ServiceAccount may watch this JobSet and patch its Pods",
            name_few(&silent)
        );
        (conditions::AGENTS_SILENT, what)
    };
    let message = format!("{begin}: {what}");
    reconciliation.set_condition(conditions::BARRIER_WAITING, reason, &message);
    if stored_reason.as_deref() != Some(reason) {
        reconciliation.warn(event::BARRIER_WAITING, message);
    }
}

/// When the group began to wait: its last epoch ended, its wait between restarts ended, it was resumed, or it was created.
fn waits_since(reconciliation: &Reconciliation<'_>) -> Timestamp {
    let ended = reconciliation.last_change_of(&[conditions::RESTART_BACKOFF, conditions::SUSPENDED]);
    // The plan of an epoch that has just ended sets this time at its end.
    let is_new = reconciliation.status.epochs() != reconciliation.observed.stored_epochs();
    let epoch = reconciliation.status.epoch_transition_time.as_ref().map(|time| time.0);
    let epoch = if is_new { Some(reconciliation.now.0) } else { epoch };
    ended.max(epoch).unwrap_or(reconciliation.now.0)
}

/// The begin of the message of a condition, which says how long something has lasted: after each of `steps`, which are less than a
/// minute, and after 1, 2, 4 ... minutes. `None` before, and while the condition says so, with what the message `adds`.
pub(crate) fn begin_of_message(
    reconciliation: &mut Reconciliation<'_>,
    condition: &str,
    since: Timestamp,
    steps: &[SignedDuration],
    adds: Option<&str>,
    words: impl FnOnce(String) -> String,
) -> Option<String> {
    let (age, next) = age(reconciliation.now.0.duration_since(since), steps);
    reconciliation.requeue_at(since.saturating_add(next).unwrap_or(since));
    let begin = words(age?);
    let stored = reconciliation.true_condition(condition);
    let says = |message: &str| message.starts_with(&begin) && adds.is_none_or(|adds| message.contains(adds));
    stored.is_none_or(|it| !says(&it.message)).then_some(begin)
}

/// How long something has lasted, in words, and after which time the next words follow.
fn age(lasted: SignedDuration, steps: &[SignedDuration]) -> (Option<String>, SignedDuration) {
    match lasted.as_mins() {
        ..1 => {
            let (passed, later) = steps.split_at(steps.partition_point(|step| *step <= lasted));
            let words = passed.last().map(|step| format!("{} s", step.as_secs()));
            (words, later.first().copied().unwrap_or(MINUTE))
        }
        minutes => {
            let power = 1_i64 << minutes.ilog2();
            (Some(format!("{power} min")), SignedDuration::from_mins(power.saturating_mul(2)))
        }
    }
}

/// The Pods of open slots that have not reported the next epoch, or have to report it again.
fn missing_pods<'a>(reconciliation: &Reconciliation<'a>) -> impl Iterator<Item = &'a PodView> {
    let next = reconciliation.next_epoch();
    let again = move |pods: &'a JobPods| pods.suspects_at(next).filter(|pod| pod.deleted_at.is_none());
    reconciliation.running_pods().flat_map(move |pods| pods.not_at(next).chain(again(pods)))
}

/// The Pods of open slots that report nothing that is a number. In the first minute each plan looks for silent agents, so it must
/// not look at every Pod of the group.
fn unreported_pods<'a>(reconciliation: &Reconciliation<'a>) -> impl Iterator<Item = &'a PodView> {
    reconciliation.running_pods().flat_map(JobPods::unreported)
}

/// Whether the agent of the Pod has run for long enough to have reported.
fn is_silent(reconciliation: &Reconciliation<'_>, pod: &PodView) -> bool {
    silent_at(pod).is_some_and(|at| at <= reconciliation.now.0)
}

/// From when on the agent of the Pod is silent, if it runs.
fn silent_at(pod: &PodView) -> Option<Timestamp> {
    let started = if pod.sidecar { pod.agent_started } else { pod.workers_started };
    started?.checked_add(SILENT).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::at_first(14, None, 15)]
    #[case::agents_should_have_reported(15, Some("15 s"), 45)]
    #[case::pods_should_have_reported(45, Some("45 s"), 60)]
    #[case::just_before_a_minute(59, Some("45 s"), 60)]
    #[case::a_minute(60, Some("1 min"), 120)]
    #[case::three_minutes(200, Some("2 min"), 240)]
    #[case::a_day(86_400, Some("1024 min"), 122_880)]
    fn age_doubles(#[case] lasted: i64, #[case] words: Option<&str>, #[case] next: i64) {
        let (age, after) = age(SignedDuration::from_secs(lasted), &[SILENT, MISSING]);
        assert_eq!((age.as_deref(), after.as_secs()), (words, next));
    }
}
