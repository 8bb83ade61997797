//! Epochs that the status has lost: written by a controller that does not know them, as the Go JobSet's, or restored from
//! a backup. The Pods remember.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::members::{running_jobs, slots};
use super::pass::Pass;

/// Takes the epochs from the Pods, uncounted, if the status knows of none and all Pods have been through some.
///
/// Without this every report would be too high, and a healthy group be deleted Pod by Pod.
pub(super) fn epochs(pass: &mut Pass<'_>) -> ControlFlow<()> {
    if !pass.in_place() || pass.status.synced_epoch > 0 || pass.seen.jobset.spec.is_suspended() {
        return ControlFlow::Continue(());
    }
    let mut reports: BTreeMap<i32, usize> = BTreeMap::new();
    for (pods, _) in running_jobs(pass) {
        let known = pods.reports().iter().map(|(epoch, count)| (*epoch, *count));
        for (epoch, count) in known.chain(pods.suspects()) {
            *reports.entry(epoch).or_default() += count;
        }
    }
    let Some(synced) = synced(&reports, slots(pass).open) else { return ControlFlow::Continue(()) };
    pass.status.synced_epoch = synced;
    pass.status.deprecated_epoch = synced - 1;
    pass.warn("EpochsRestored", format!("the status had lost its epochs: all Pods have reported epoch {synced}"));
    ControlFlow::Break(())
}

/// The epoch whose workers run, by what the agents of all open slots have reported. They may be on their way from one
/// epoch to the next.
fn synced(reports: &BTreeMap<i32, usize>, open: usize) -> Option<i32> {
    let (&first, _) = reports.first_key_value()?;
    let (&last, _) = reports.last_key_value()?;
    // A first epoch is how every JobSet begins.
    let has_run = last > 1 && first >= 1 && first >= last - 1;
    (has_run && reports.values().sum::<usize>() == open).then_some(first)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::synced;

    #[rstest]
    #[case::a_start(&[(1, 4)], 4, None)]
    #[case::nobody(&[], 4, None)]
    #[case::all_run(&[(7, 4)], 4, Some(7))]
    #[case::on_the_way(&[(7, 3), (8, 1)], 4, Some(7))]
    #[case::the_first_restart(&[(1, 3), (2, 1)], 4, Some(1))]
    #[case::somebody_is_missing(&[(7, 3)], 4, None)]
    #[case::no_group(&[(1, 3), (7, 1)], 4, None)]
    #[case::no_epochs(&[(i32::MIN, 1), (i32::MAX, 3)], 4, None)]
    fn epochs_are_taken_from_pods_that_agree(
        #[case] reports: &[(i32, usize)],
        #[case] open: usize,
        #[case] wanted: Option<i32>,
    ) {
        assert_eq!(synced(&reports.iter().copied().collect(), open), wanted);
    }
}
