//! Asks again on whom the present incident is blamed, until the next epoch begins.
//!
//! Statuses come late: when the first failure restarts the group, those of others may be on their way, and that a node is lost is known
//! after most of a minute. What is known by then is compared with the strike that the status has: the strike holds, or another Pod
//! strikes instead, or nobody does. Without a strike nothing is asked again: the status has it that nobody knows, and a later leader has
//! not seen all that made it so.

use std::ops::ControlFlow;

use jobset_api::AvoidedNode;

use super::blame::{self, Review};
use super::{clear, judge, limit, strike, verdict};
use crate::backoff;
use crate::reconciliation::Reconciliation;
use crate::types::Trigger;

/// Breaks if the strike does not hold: this has to be stored before anything follows from it.
pub(crate) fn reconsider(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let Some(place) = strike_of_this_restart(reconciliation) else { return ControlFlow::Continue(()) };
    let before = reconciliation.status.node_strikes[place].clone();
    let (other, why) = match blame::review(reconciliation, &before) {
        Review::Holds => return ControlFlow::Continue(()),
        Review::Other(blame, why) => (Some(blame), why),
        Review::Nobody(why) => (None, why),
    };
    reconciliation.status.node_strikes.remove(place);
    let strikes = verdict::counting(&reconciliation.status.node_strikes, &before.node);
    let is_bad = limit(reconciliation).is_some_and(|limit| strikes >= limit);
    // It was avoided by this restart: its Pods have not got successors yet.
    let is_new = |it: &AvoidedNode| it.node == before.node && !it.moving.is_empty();
    clear(reconciliation, |it| !is_bad && is_new(it), |_| why.clone());
    if let Some(blame) = other {
        if let Some(restart) = reconciliation.status.recent_restarts.last_mut() {
            restart.start_time = restart.start_time.clone().min(backoff::micro_time(blame.at));
        }
        strike(reconciliation, Some(&blame));
        judge(reconciliation, Some(&blame));
    }
    ControlFlow::Break(())
}

/// Where the strike is of the restart that is under way in place, if it has one that is not certain by itself.
pub(super) fn strike_of_this_restart(reconciliation: &Reconciliation<'_>) -> Option<usize> {
    let status = &reconciliation.status;
    let is_open = reconciliation.observed.stored_epochs().is_closed() && status.synced_epoch > 0;
    let began = backoff::start_time(reconciliation).filter(|_| is_open)?;
    let certain = [Trigger::Refused.word(), Trigger::Stalled.word()];
    // Those before it are older than the epoch in which it was made.
    status.node_strikes.iter().rposition(|it| it.time.0 >= began && !certain.contains(&&*it.reason))
}
