//! Epochs that the status has lost: written by a controller that does not know them, as the Go JobSet's, or restored from
//! a backup. The Pods remember.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::members::{running_jobs, slots};
use super::pass::Pass;

/// No group restarts so often; whoever reports more has not been told so by an agent.
const HIGHEST: i32 = 1_000_000_000;

/// What the reports say of a status without epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// Nothing is lost: the JobSet is new.
    New,
    /// Most Pods have been through epochs, but not all slots are heard of.
    Partial,
    /// The workers run, or ran, in this epoch.
    Epoch(i32),
}

/// Takes the epochs from the Pods, uncounted, if the status knows of none and most Pods have been through some.
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
    // A first epoch is how every JobSet begins.
    if reports.range(2..).next().is_none() {
        return ControlFlow::Continue(());
    }
    match memory(&reports, slots(pass).open) {
        Memory::New => return ControlFlow::Continue(()),
        Memory::Partial => {
            let message = "the status has lost its epochs: waiting until all Pods have reported theirs";
            pass.warn("EpochsLost", message.to_owned());
        }
        Memory::Epoch(synced) => {
            pass.status.synced_epoch = synced;
            pass.status.deprecated_epoch = synced - 1;
            let message = format!("the status had lost its epochs: its Pods have reported epoch {synced}");
            pass.warn("EpochsRestored", message);
        }
    }
    ControlFlow::Break(())
}

/// The group may be on its way from one epoch to the next. Pods that are behind were replaced meanwhile, and begin anew;
/// they restart with what follows. So do all if most are behind: then it is the others that are wrong.
fn memory(reports: &BTreeMap<i32, usize>, open: usize) -> Memory {
    let valid = || reports.range(1..=HIGHEST).map(|(epoch, count)| (*epoch, *count));
    let Some(last) = valid().map(|(epoch, _)| epoch).next_back().filter(|last| *last > 1) else { return Memory::New };
    let group = || valid().filter(|(epoch, _)| *epoch >= last - 1);
    if 2 * group().map(|(_, count)| count).sum::<usize>() <= open {
        return Memory::New;
    }
    let heard: usize = reports.values().sum();
    match group().next() {
        Some((first, _)) if heard == open => Memory::Epoch(first),
        _ => Memory::Partial,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::{HIGHEST, Memory, memory};

    #[rstest]
    #[case::a_start(&[(1, 4)], 4, Memory::New)]
    #[case::nobody(&[], 4, Memory::New)]
    #[case::all_run(&[(7, 4)], 4, Memory::Epoch(7))]
    #[case::on_the_way(&[(7, 3), (8, 1)], 4, Memory::Epoch(7))]
    #[case::the_first_restart(&[(1, 3), (2, 1)], 4, Memory::Epoch(1))]
    #[case::somebody_is_missing(&[(7, 3)], 4, Memory::Partial)]
    #[case::somebody_was_replaced(&[(1, 1), (7, 3)], 4, Memory::Epoch(7))]
    #[case::somebody_is_wrong(&[(1, 3), (7, 1)], 4, Memory::New)]
    #[case::no_epochs(&[(i32::MIN, 1), (HIGHEST + 1, 3)], 4, Memory::New)]
    fn epochs_are_taken_from_pods_that_agree(
        #[case] reports: &[(i32, usize)],
        #[case] open: usize,
        #[case] wanted: Memory,
    ) {
        assert_eq!(memory(&reports.iter().copied().collect(), open), wanted);
    }
}
