//! Restores epochs that the status has lost, from the reports of the Pods. The Go JobSet drops these fields because it does
//! not know them, and a JobSet that is restored from a backup may have an empty status.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use jobset_api::event;

use crate::members::slots;
use crate::reconciliation::Reconciliation;

/// Largest epoch that a report may have. No group restarts so often, so a larger report does not come from an agent.
const HIGHEST: i32 = 1_000_000_000;

/// What the reports mean for a status without epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// The status has lost nothing: the JobSet is new.
    New,
    /// Most Pods have been through epochs, but not all slots have reported.
    Partial,
    /// The workers run in this epoch, or ran in it last.
    Epoch(i32),
}

/// Takes the epochs from the Pods if the status has none and most Pods have been through some. Counts no restart.
///
/// Without this rule every report would be too high, and the controller would delete the Pods of a healthy group.
pub(super) fn epochs(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    if reconciliation.status.synced_epoch > 0 {
        return ControlFlow::Continue(());
    }
    let mut reports: BTreeMap<i32, usize> = BTreeMap::new();
    for pods in reconciliation.running_pods() {
        for (epoch, count) in pods.reports().iter().chain(pods.suspect_members()) {
            *reports.entry(*epoch).or_default() += count;
        }
    }
    // Every JobSet begins with epoch 1.
    if reports.range(2..).next().is_none() {
        return ControlFlow::Continue(());
    }
    match memory(&reports, slots(reconciliation).open) {
        Memory::New => return ControlFlow::Continue(()),
        Memory::Partial => {
            let message = "the status has lost its epochs; waiting for the reports of all Pods";
            reconciliation.warn(event::EPOCHS_LOST, message.to_owned());
        }
        Memory::Epoch(synced) => {
            reconciliation.status.synced_epoch = synced;
            reconciliation.status.deprecated_epoch = synced - 1;
            let message =
                format!("the status had lost its epochs; epoch {synced} is restored from the reports of the Pods");
            reconciliation.warn(event::EPOCHS_RESTORED, message);
        }
    }
    ControlFlow::Break(())
}

/// The epochs that most reports agree on. The group may be between two epochs.
///
/// A Pod that reports an older epoch is a replacement; it restarts with the next restart of the group. If most Pods report
/// older epochs, the newer reports are wrong.
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
    #[case::no_report(&[], 4, Memory::New)]
    #[case::all_run(&[(7, 4)], 4, Memory::Epoch(7))]
    #[case::on_the_way(&[(7, 3), (8, 1)], 4, Memory::Epoch(7))]
    #[case::the_first_restart(&[(1, 3), (2, 1)], 4, Memory::Epoch(1))]
    #[case::one_report_is_missing(&[(7, 3)], 4, Memory::Partial)]
    #[case::one_pod_was_replaced(&[(1, 1), (7, 3)], 4, Memory::Epoch(7))]
    #[case::one_report_is_wrong(&[(1, 3), (7, 1)], 4, Memory::New)]
    #[case::no_epochs(&[(i32::MIN, 1), (HIGHEST + 1, 3)], 4, Memory::New)]
    fn memory_most_reports_agree_restores_epoch(
        #[case] reports: &[(i32, usize)],
        #[case] open: usize,
        #[case] expected: Memory,
    ) {
        assert_eq!(memory(&reports.iter().copied().collect(), open), expected);
    }
}
