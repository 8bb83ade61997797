//! Reports a group that waits at the barrier for long, with the Pods that it waits for.

use jobset_api::{JobSetStatus, conditions, event};
use jobset_store::pods::{JobPods, PodView};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::members::{self, Slots};
use crate::reconciliation::{Reconciliation, first_few};
use crate::{backoff, not_running, settle};

/// After this time at the barrier, an agent that runs and has not reported is silent.
const SILENT: SignedDuration = SignedDuration::from_secs(15);
/// After this time at the barrier, a Pod that has not reported is missing. The unit of the time that the message says.
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// Sets the condition BarrierWaiting, and refreshes its message after 1, 2, 4 ... minutes.
pub(super) fn report(reconciliation: &mut Reconciliation<'_>) {
    if settle::report(reconciliation) {
        return;
    }
    let suspended = reconciliation.observed.jobset.spec.is_suspended();
    let waits = reconciliation.in_place()
        && !suspended
        && reconciliation.status.epochs().is_closed()
        && backoff::waits_until(reconciliation).is_none();
    let slots = if waits { members::slots(reconciliation) } else { Slots::default() };
    let next = reconciliation.next_epoch();
    let arrived = slots.reports.get(&next).copied().unwrap_or(0);
    let are_there = slots.open <= arrived || slots.members() > 0 && slots.members_at(next) == slots.members();
    let leaving = if waits && are_there { members::leaving(reconciliation) } else { None };
    if slots.open <= arrived && leaving.is_none() {
        let message = if suspended { "jobset is suspended" } else { "all Pods have reached the barrier" };
        reconciliation.clear_condition(conditions::BARRIER_WAITING, conditions::BARRIER_REACHED, message);
        return;
    }
    let since = waits_since(reconciliation);
    let waited = reconciliation.now.0.duration_since(since);
    let Some((age, refresh)) = age(waited, SILENT) else {
        reconciliation.requeue_at(since.saturating_add(SILENT).unwrap_or(since));
        return;
    };
    reconciliation.requeue_at(since.saturating_add(refresh).unwrap_or(since));
    let begin = format!("the group waits at the barrier for {age}");
    let stored = reconciliation.true_condition(conditions::BARRIER_WAITING);
    if stored.is_some_and(|it| it.message.starts_with(&begin)) {
        return;
    }
    let stored_reason = stored.map(|it| it.reason.clone());
    let silent = names(unreported_pods(reconciliation).filter(|pod| is_silent(reconciliation, pod)));
    let (reason, what) = if let Some(pod) = leaving {
        let what = format!(
            "Pod {} is outside of the size of the JobSet, and could still start its worker; the Pod has to be deleted first",
            pod.name
        );
        (conditions::PODS_LEAVING, what)
    } else if silent.is_empty() && waited < MINUTE {
        return;
    } else if silent.is_empty() {
        let mut missing_pods: Vec<&PodView> = missing_pods(reconciliation).collect();
        missing_pods.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let missing: Vec<&str> = missing_pods.iter().map(|pod| &*pod.name).collect();
        let without_pod = (slots.open - arrived).saturating_sub(missing.len());
        let mut what = Vec::new();
        if !missing.is_empty() {
            what.push(format!("{} of {} Pods have not reported: {}", missing.len(), slots.open, first_few(&missing)));
            what.extend(missing_pods.iter().find_map(|pod| not_running::why(reconciliation, pod)));
        }
        if without_pod > 0 {
            what.push(format!("{without_pod} of {} Pods do not exist or are being deleted", slots.open));
        }
        (conditions::PODS_MISSING, what.join("; "))
    } else {
        let what = format!(
            "the agents of these Pods run and have not reported an epoch: {}; look at their logs, and check that their \
             ServiceAccount may watch this JobSet and patch its Pods",
            first_few(&silent)
        );
        (conditions::AGENTS_SILENT, what)
    };
    let message = format!("{begin}: {what}");
    reconciliation.set_condition(conditions::BARRIER_WAITING, true, reason, &message);
    if stored_reason.as_deref() != Some(reason) {
        reconciliation.warn(event::BARRIER_WAITING, message);
    }
}

/// When the group began to wait: its last epoch ended, its wait between restarts ended, it was resumed, or it was created.
fn waits_since(reconciliation: &Reconciliation<'_>) -> Timestamp {
    let ends_wait = |type_: &str| type_ == conditions::RESTART_BACKOFF || type_ == conditions::SUSPENDED;
    let conditions = reconciliation.status.conditions.iter().filter(|it| ends_wait(&it.type_));
    let ended = conditions.map(|it| it.last_transition_time.0);
    let created = reconciliation.observed.jobset.metadata.creation_timestamp.as_ref().map(|time| time.0);
    // The plan of an epoch that has just ended sets this time at its end.
    let before = reconciliation.observed.jobset.status.as_ref().map(JobSetStatus::epochs);
    let is_new = reconciliation.status.epochs() != before.unwrap_or_default();
    let epoch = reconciliation.status.epoch_transition_time.as_ref().map(|time| time.0);
    let epoch = if is_new { Some(reconciliation.now.0) } else { epoch };
    ended.chain(created).chain(epoch).max().unwrap_or(reconciliation.now.0)
}

/// How long the group has waited, in words, and after which time the next words follow. `None` if it has not waited for `long`,
/// which is less than a minute.
pub(super) fn age(waited: SignedDuration, long: SignedDuration) -> Option<(String, SignedDuration)> {
    let minutes = waited.as_mins();
    if minutes == 0 {
        return (waited >= long).then(|| (format!("{} s", long.as_secs()), MINUTE));
    }
    let power = 1_i64 << minutes.ilog2();
    Some((format!("{power} min"), SignedDuration::from_mins(power.saturating_mul(2))))
}

/// The Pods of open slots that have not reported the next epoch, or have to report it again.
fn missing_pods<'a>(reconciliation: &Reconciliation<'a>) -> impl Iterator<Item = &'a PodView> {
    let next = reconciliation.next_epoch();
    let again = move |pods: &'a JobPods| pods.suspects_at(next).filter(|pod| pod.deleted_at.is_none());
    members::running_jobs(reconciliation).flat_map(move |(pods, _)| pods.not_at(next).chain(again(pods)))
}

/// The Pods of open slots that report nothing that is a number. In the first minute each plan looks for silent agents, so it must
/// not look at every Pod of the group.
fn unreported_pods<'a>(reconciliation: &Reconciliation<'a>) -> impl Iterator<Item = &'a PodView> {
    members::running_jobs(reconciliation).flat_map(|(pods, _)| pods.unreported())
}

/// The names of Pods, in their order.
fn names<'a>(pods: impl Iterator<Item = &'a PodView>) -> Vec<&'a str> {
    let mut names: Vec<&str> = pods.map(|pod| &*pod.name).collect();
    names.sort_unstable();
    names
}

/// Whether the agent of the Pod has run for long enough to have reported.
fn is_silent(reconciliation: &Reconciliation<'_>, pod: &PodView) -> bool {
    let started = if pod.sidecar { pod.agent_started } else { pod.workers_started };
    started.is_some_and(|started| reconciliation.now.0.duration_since(started) >= SILENT)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::at_first(14, None)]
    #[case::agents_should_have_reported(15, Some(("15 s", 60)))]
    #[case::just_before_a_minute(59, Some(("15 s", 60)))]
    #[case::a_minute(60, Some(("1 min", 120)))]
    #[case::three_minutes(200, Some(("2 min", 240)))]
    #[case::a_day(86_400, Some(("1024 min", 122_880)))]
    fn age_doubles(#[case] waited: i64, #[case] expected: Option<(&str, i64)>) {
        let age = age(SignedDuration::from_secs(waited), SILENT);
        let age = age.as_ref().map(|(words, refresh)| (words.as_str(), refresh.as_secs()));
        assert_eq!(age, expected);
    }
}
