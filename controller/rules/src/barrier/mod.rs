//! The barrier of a group that restarts in place: its state for the metrics, what it waits for, and the Pods that never reach it.

mod failures;
mod wait;

use jobset_store::Observed;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::members::{self, Slots};
use crate::reconciliation::Reconciliation;
use crate::types::Settings;

pub(super) use failures::limit_failures;
pub(super) use wait::{begin_of_message, report_wait};

/// The barrier of a group that restarts in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// Whether the barrier is lifted: workers run, and no restart is under way.
    pub open: bool,
    /// Number of slots that have not reported the next epoch. 0 while the barrier is open.
    pub waiting: usize,
}

/// The barrier of a JobSet. `None` if the JobSet has no barrier: it restarts by recreation, is suspended, has finished, is
/// being deleted, is invalid, or belongs to another controller.
pub fn barrier(observed: &Observed<'_>, settings: &Settings, now: &Time) -> Option<Barrier> {
    let reconciliation = Reconciliation::new(observed, settings, now);
    let jobset = observed.jobset;
    let has_ended = jobset.metadata.deletion_timestamp.is_some() || !reconciliation.status.terminal_state.is_empty();
    if !reconciliation.in_place()
        || has_ended
        || observed.invalid().is_some()
        || jobset.spec.is_suspended()
        || !jobset.is_managed_here()
    {
        return None;
    }
    let (synced, deprecated) = (reconciliation.status.synced_epoch, reconciliation.status.deprecated_epoch);
    Some(barrier_of(synced, deprecated, &members::slots(&reconciliation)))
}

/// The barrier with these epochs and slots. A deleted Pod closes the barrier for the others only when its replacement has
/// reported.
fn barrier_of(synced: i32, deprecated: i32, slots: &Slots) -> Barrier {
    let open = synced > 0 && deprecated < synced && slots.at(synced) > 0;
    Barrier { open, waiting: if open { 0 } else { slots.missing(synced.saturating_add(1)) } }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::no_pod_has_reported((0, 0), 4, &[], (false, 4))]
    #[case::some_have_reported((0, 0), 4, &[(1, 3)], (false, 1))]
    #[case::all_run((1, 0), 4, &[(1, 4)], (true, 0))]
    #[case::one_is_being_replaced((1, 0), 4, &[(1, 3)], (true, 0))]
    #[case::group_restarts((1, 1), 4, &[(1, 3), (2, 1)], (false, 3))]
    #[case::all_but_one_are_back((1, 1), 4, &[(2, 3)], (false, 1))]
    #[case::group_runs_again((2, 1), 4, &[(2, 4)], (true, 0))]
    #[case::group_is_recreated((2, 1), 4, &[], (false, 4))]
    #[case::some_recreated_have_reported((2, 1), 4, &[(3, 1)], (false, 3))]
    #[case::all_are_done((1, 0), 0, &[], (false, 0))]
    fn barrier_epochs_and_reports_decide_open_and_waiting(
        #[case] (synced, deprecated): (i32, i32),
        #[case] open: usize,
        #[case] reports: &[(i32, usize)],
        #[case] expected: (bool, usize),
    ) {
        let slots = Slots { open, reports: reports.iter().copied().collect(), ..Slots::default() };
        let Barrier { open, waiting } = barrier_of(synced, deprecated, &slots);
        assert_eq!((open, waiting), expected);
    }
}
