//! How the barrier of a group stands, as it is stored and was reported: for the metrics, no rule goes by it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Settings;
use super::members::{self, Slots};
use super::pass::Pass;
use crate::observe::Observed;

/// The barrier of a group that restarts in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// Whether it is lifted, and workers run: no restart is under way.
    pub open: bool,
    /// Pods that it waits for: slots that have not reported the epoch that comes next. None while it is open.
    pub waiting: usize,
}

/// The barrier of a JobSet; none where there is nothing to wait for: it restarts by recreation, is suspended, has
/// finished, is being deleted or invalid, or is another controller's.
pub fn barrier(seen: &Observed<'_>, settings: &Settings, now: &Time) -> Option<Barrier> {
    let pass = Pass::new(seen, settings, now);
    let jobset = seen.jobset;
    let leaves = jobset.metadata.deletion_timestamp.is_some() || !pass.status.terminal_state.is_empty();
    if !pass.in_place() || leaves || seen.invalid().is_some() || jobset.spec.is_suspended() || !jobset.is_managed_here()
    {
        return None;
    }
    Some(stands(pass.status.synced_epoch, pass.status.deprecated_epoch, &members::slots(&pass)))
}

/// A Pod that has gone closes it for the others only once its successor has reported.
fn stands(synced: i32, deprecated: i32, slots: &Slots) -> Barrier {
    let at = |epoch: i32| slots.reports.get(&epoch).copied().unwrap_or(0);
    let open = synced > 0 && deprecated < synced && at(synced) > 0;
    let waiting = if open { 0 } else { slots.open.saturating_sub(at(synced.saturating_add(1))) };
    Barrier { open, waiting }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nobody_has_come((0, 0), 4, &[], (false, 4))]
    #[case::some_have_come((0, 0), 4, &[(1, 3)], (false, 1))]
    #[case::all_run((1, 0), 4, &[(1, 4)], (true, 0))]
    #[case::one_is_being_replaced((1, 0), 4, &[(1, 3)], (true, 0))]
    #[case::it_restarts((1, 1), 4, &[(1, 3), (2, 1)], (false, 3))]
    #[case::all_but_one_are_back((1, 1), 4, &[(2, 3)], (false, 1))]
    #[case::it_runs_again((2, 1), 4, &[(2, 4)], (true, 0))]
    #[case::it_is_recreated((2, 1), 4, &[], (false, 4))]
    #[case::and_some_are_there((2, 1), 4, &[(3, 1)], (false, 3))]
    #[case::all_are_done((1, 0), 0, &[], (false, 0))]
    fn a_barrier(
        #[case] (synced, deprecated): (i32, i32),
        #[case] open: usize,
        #[case] reports: &[(i32, usize)],
        #[case] wanted: (bool, usize),
    ) {
        let slots = Slots { open, reports: reports.iter().copied().collect(), ..Slots::default() };
        let Barrier { open, waiting } = stands(synced, deprecated, &slots);
        assert_eq!((open, waiting), wanted);
    }
}
