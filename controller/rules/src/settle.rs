//! Names lag behind Pods: for as long as DNS caches its answers, the peers of a Pod that was replaced find its old address, or none.
//! The next epoch waits until the youngest address is as old as that.
//!
//! An agent cannot tell that the names of its peers have settled: each replica of a DNS server has a cache of its own, and its
//! worker may ask another one.

use jobset_api::{conditions, event};
use jobset_store::pods::PodView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::backoff;
use crate::reconciliation::Reconciliation;

/// An epoch that waits until names have settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settling {
    until: Timestamp,
    /// When the Pod that it waits for got its address, as its node says.
    since: Timestamp,
}

/// What the next epoch waits for, if names have not settled. The first epoch of a group waits for nothing: nobody has looked up a name
/// before it. The cost grows with the number of Jobs.
pub(super) fn waits(reconciliation: &Reconciliation<'_>) -> Option<Settling> {
    let time = time(reconciliation);
    if reconciliation.status.synced_epoch == 0 || time.is_zero() {
        return None;
    }
    let youngest =
        |of_newcomers| reconciliation.running_pods().filter_map(|pods| pods.youngest_address(of_newcomers)).max();
    let now = reconciliation.now.0;
    let began = own_condition(reconciliation).map_or(now, |it| it.last_transition_time.0);
    let longest = backoff::seconds(reconciliation.settings.longest_restart_backoff);
    settling(youngest(false), youngest(true), time, Wait { began, now, longest })
}

/// Says what the next epoch waits for in the condition BarrierWaiting. Returns whether it waits for names, and for nothing else.
pub(super) fn report(reconciliation: &mut Reconciliation<'_>) -> bool {
    let waits = reconciliation.settling.filter(|_| backoff::waits_until(reconciliation).is_none());
    let known = own_condition(reconciliation).map(|it| it.message.clone());
    let Some(settling) = waits else {
        let stored = reconciliation.true_condition(conditions::BARRIER_WAITING);
        if stored.is_some_and(|it| it.reason == conditions::NAMES_SETTLE) {
            end(reconciliation);
        }
        return false;
    };
    reconciliation.requeue_at(settling.until);
    let begin = format!("the next epoch waits until {:.0} for DNS: ", settling.until);
    if known.as_ref().is_some_and(|message| message.starts_with(&begin)) {
        return true;
    }
    let pods = reconciliation.running_pods().filter_map(|pods| pods.with_address_since(settling.since));
    let pod = pods.map(|PodView { name, .. }| name).min().map_or("", String::as_str);
    let message = format!("{begin}Pod {pod} has a new address");
    if known.is_none() {
        // From now on, the condition says since when the epoch waits for names.
        end(reconciliation);
    }
    reconciliation.set_condition(conditions::BARRIER_WAITING, conditions::NAMES_SETTLE, &message);
    if known.is_none() && backoff::is_announced(reconciliation) {
        reconciliation.note(event::BARRIER_WAITING, message);
    }
    true
}

/// A wait of an epoch for names.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// When it began, `now` at the latest.
    began: Timestamp,
    now: Timestamp,
    longest: SignedDuration,
}

/// The last address to settle, if it has not: members and newcomers last got one then, by the clocks of their nodes.
///
/// All Pods have an address when the wait begins, so one that seems to be of a later time is of a node whose clock is ahead, or its
/// status is late. Once that time has come, the Pod may as well have got another address. Newcomers that arrive one after another do
/// not prolong the wait.
fn settling(
    of_members: Option<Timestamp>,
    of_newcomers: Option<Timestamp>,
    time: SignedDuration,
    Wait { began, now, longest }: Wait,
) -> Option<Settling> {
    let of_members = of_members.map(|since| (if since > now { began } else { since }, since));
    let of_newcomers = of_newcomers.map(|since| (since.min(began), since));
    let (got, since) = of_members.max(of_newcomers)?;
    let latest = began.saturating_add(longest).unwrap_or(Timestamp::MAX);
    let until = got.saturating_add(time.min(longest)).unwrap_or(Timestamp::MAX).min(latest);
    (until > now).then_some(Settling { until, since })
}

/// How long the names of this JobSet take to settle.
fn time(reconciliation: &Reconciliation<'_>) -> SignedDuration {
    let of_jobset = reconciliation.observed.jobset.settle_names();
    backoff::seconds(of_jobset.unwrap_or(reconciliation.settings.settle_names))
}

/// The condition BarrierWaiting, if it says since when the epoch waits for names. One of the future says nothing: the clock of the
/// leader that has written it was ahead.
fn own_condition<'a>(reconciliation: &'a Reconciliation<'_>) -> Option<&'a Condition> {
    let stored = reconciliation.true_condition(conditions::BARRIER_WAITING);
    stored.filter(|it| it.reason == conditions::NAMES_SETTLE && it.last_transition_time <= *reconciliation.now)
}

fn end(reconciliation: &mut Reconciliation<'_>) {
    let message = "the wait is over";
    reconciliation.clear_condition(conditions::BARRIER_WAITING, conditions::BARRIER_REACHED, message);
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const LONGEST: i64 = 1500;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A wait that began in this second, or begins now, in second 1000.
    fn wait(began: Option<i64>) -> Wait {
        Wait { began: at(began.unwrap_or(1000)), now: at(1000), longest: SignedDuration::from_secs(LONGEST) }
    }

    /// Names take 35 s to settle.
    #[rstest]
    #[case::no_address(None, None, None, None)]
    #[case::old_address(Some(965), None, None, None)]
    #[case::new_address(Some(966), None, None, Some(1001))]
    #[case::new_address_since_it_waits(Some(990), None, Some(980), Some(1025))]
    #[case::clock_ahead(Some(5000), None, None, Some(1035))]
    #[case::clock_ahead_while_it_waits(Some(5000), None, Some(970), Some(1005))]
    #[case::clock_ahead_when_it_has_waited(Some(5000), None, Some(965), None)]
    #[case::newcomer(Some(0), Some(990), None, Some(1025))]
    #[case::newcomer_since_it_waits(Some(0), Some(990), Some(980), Some(1015))]
    #[case::newcomer_older_than_member(Some(990), Some(980), None, Some(1025))]
    fn names_settle_when_the_youngest_address_is_old(
        #[case] member: Option<i64>,
        #[case] newcomer: Option<i64>,
        #[case] began: Option<i64>,
        #[case] until: Option<i64>,
    ) {
        let found = settling(member.map(at), newcomer.map(at), SignedDuration::from_secs(35), wait(began));
        assert_eq!(found.map(|settling| settling.until), until.map(at));
    }

    #[rstest]
    #[case::time(990, None, 990 + LONGEST)]
    #[case::addresses_that_keep_changing(990, Some(1000 - LONGEST + 1), 1001)]
    fn wait_for_names_ends_after_the_longest_wait(#[case] since: i64, #[case] began: Option<i64>, #[case] until: i64) {
        let found = settling(Some(at(since)), None, SignedDuration::MAX, wait(began));
        assert_eq!(found.map(|settling| settling.until), Some(at(until)));
    }
}
