//! In-place restart: from the epochs that the agents report to `syncedEpoch` and `deprecatedEpoch` (KEP-467).
//!
//! The rule itself is [`decide`], a function over counts. The rest of this file collects the counts and does the
//! bookkeeping.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use jobset_api::RestartStrategy;

use super::restart::{self, Counting};
use super::{Pass, has_completed};
use crate::store::{Epoch, JobView, PodPhase, PodView};

/// `status.syncedEpoch`, `deprecatedEpoch` and `freeEpoch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    /// The epoch whose workers may run.
    pub synced: i32,
    /// Pods at this epoch or below must restart.
    pub deprecated: i32,
    /// The advance to this epoch is not counted: the controller caused it.
    pub free: i32,
}

/// The slots of a group. A slot is one completion index of one Job of the current attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Slots that are not done.
    pub open: usize,
    /// Slots that have succeeded.
    pub done: usize,
    /// Open slots by the epoch that their Pod reports. A report outside of `1..=synced + 1` is none.
    pub reports: BTreeMap<i32, usize>,
}

/// What follows from the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing to write.
    Nothing,
    /// These epochs shall be stored. `begins_restart` if they begin a restart of the group that the controller did not
    /// cause itself.
    Store {
        /// The new epochs.
        epochs: Epochs,
        /// Whether this write is the one in which the restart is counted.
        begins_restart: bool,
    },
    /// The group would have to restart, but slots that are done cannot come back in place.
    Recreate {
        /// Whether the restart has been counted already, by the write that raised `deprecatedEpoch`.
        counted: bool,
    },
}

/// Seed 003, "Implementation - JobSet controller", with restarts counted as `protocol.md` says: in the one write that
/// raises `deprecatedEpoch` to `syncedEpoch`.
pub fn decide(current: Epochs, slots: &Slots) -> Decision {
    let Some((&newest, &at_newest)) = slots.reports.last_key_value() else { return Decision::Nothing };
    if slots.done > 0 && current.synced > 0 && newest > current.synced {
        return Decision::Recreate { counted: current.deprecated == current.synced };
    }
    let all_equal = at_newest == slots.open;
    let epochs = if all_equal {
        // All failed at once, or the controller was away: what was never deprecated is deprecated now.
        let synced = current.synced.max(newest);
        let deprecated =
            if newest > current.synced { current.deprecated.max(current.synced) } else { current.deprecated };
        Epochs { synced, deprecated, ..current }
    } else {
        Epochs { deprecated: current.deprecated.max(newest - 1), ..current }
    };
    if epochs == current {
        return Decision::Nothing;
    }
    // Before the first lift there is nothing to deprecate: a start never counts.
    let raised = epochs.deprecated > current.deprecated;
    let free = current.free == current.synced + 1;
    Decision::Store { epochs, begins_restart: raised && !free }
}

/// Applies the rule to a JobSet that restarts in place.
pub(super) fn advance(pass: &mut Pass<'_>) -> ControlFlow<()> {
    if pass.seen.jobset.spec.restart_strategy() != RestartStrategy::InPlaceRestart {
        return ControlFlow::Continue(());
    }
    let current = Epochs {
        synced: pass.status.synced_epoch,
        deprecated: pass.status.deprecated_epoch,
        free: pass.status.free_epoch,
    };
    let members = collect(pass, current);
    for (pod, epoch) in members.invalid {
        let valid = current.synced + 1;
        pass.warn(
            "EpochInvalid",
            format!("Pod {pod} reports the epoch {epoch:?}, which is not a number from 1 to {valid}"),
        );
    }
    match decide(current, &members.slots) {
        Decision::Nothing => {}
        Decision::Recreate { counted } => {
            let cause = format!("a worker restarted, and {} others have succeeded", members.slots.done);
            let counting = if counted { Counting::Already } else { Counting::Counted };
            restart::recreate(pass, counting, &cause)?;
        }
        Decision::Store { epochs, begins_restart } => {
            if begins_restart {
                restart::count(pass, Counting::Counted, "a worker restarted")?;
                let message = format!("in place, from epoch {} to {}", current.synced, current.synced + 1);
                pass.tell("Restarting", message);
            }
            pass.status.synced_epoch = epochs.synced;
            pass.status.deprecated_epoch = epochs.deprecated;
        }
    }
    ControlFlow::Continue(())
}

/// The slots, and the Pods whose report is not valid.
struct Members {
    slots: Slots,
    invalid: Vec<(String, String)>,
}

/// Counts slots without walking over them: what a hostile size costs is one addition.
fn collect(pass: &Pass<'_>, current: Epochs) -> Members {
    let jobs: HashMap<&str, &JobView> = pass.current_jobs().map(|(_, job)| (job.uid.as_str(), job)).collect();
    let existing: i64 = jobs.values().map(|job| i64::from(job.pods)).sum();
    let completed = |job: &&JobView| if has_completed(job) { job.pods } else { job.completed_count() };
    let mut done: i64 = jobs.values().map(|job| i64::from(completed(job))).sum();
    let mut reports = BTreeMap::new();
    let mut invalid = Vec::new();
    for ((job, index), pod) in newest_pods(pass) {
        let Some(job) = jobs.get(job) else { continue };
        if !(0..job.pods).contains(&index) || has_completed(job) || job.has_completed(index) {
            continue;
        }
        if pod.phase == PodPhase::Succeeded {
            done += 1;
            continue;
        }
        if !pod.fills_its_slot() {
            continue;
        }
        match &pod.epoch {
            Epoch::Absent => {}
            Epoch::Reported(epoch) if (1..=current.synced + 1).contains(epoch) => {
                *reports.entry(*epoch).or_default() += 1;
            }
            Epoch::Reported(epoch) => invalid.push((pod.name.clone(), epoch.to_string())),
            Epoch::Malformed(text) => invalid.push((pod.name.clone(), text.clone())),
        }
    }
    // The slots of a Job that does not exist yet are open, too.
    let expected = pass.seen.jobset.spec.expected_pods().max(existing);
    let count = |number: i64| usize::try_from(number.max(0)).unwrap_or(usize::MAX);
    Members { slots: Slots { open: count(expected - done), done: count(done), reports }, invalid }
}

/// The Pod that stands for each slot: the newest that can fill it, else the newest of all.
fn newest_pods<'a>(pass: &Pass<'a>) -> HashMap<(&'a str, i32), &'a PodView> {
    let mut newest: HashMap<(&str, i32), &PodView> = HashMap::new();
    let rank = |pod: &PodView| (pod.fills_its_slot() || pod.phase == PodPhase::Succeeded, pod.created);
    for pod in &pass.seen.pods {
        let (Some(job), Some(index)) = (pod.job_uid.as_deref(), pod.index) else { continue };
        let held = newest.entry((job, index)).or_insert(pod);
        if rank(pod) > rank(held) {
            *held = pod;
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn epochs(synced: i32, deprecated: i32) -> Epochs {
        Epochs { synced, deprecated, free: 0 }
    }

    fn slots(open: usize, done: usize, reports: &[i32]) -> Slots {
        let mut slots = Slots { open, done, reports: BTreeMap::new() };
        for epoch in reports {
            *slots.reports.entry(*epoch).or_default() += 1;
        }
        slots
    }

    fn store(synced: i32, deprecated: i32, begins_restart: bool) -> Decision {
        Decision::Store { epochs: epochs(synced, deprecated), begins_restart }
    }

    #[rstest]
    // Seed 003, "Integration tests".
    #[case::all_in_sync(epochs(1, 0), slots(2, 0, &[1, 1]), Decision::Nothing)]
    #[case::all_just_became_in_sync(epochs(1, 1), slots(2, 0, &[2, 2]), store(2, 1, false))]
    #[case::one_restarted_into_a_new_epoch(epochs(1, 0), slots(2, 0, &[1, 2]), store(1, 1, true))]
    #[case::a_second_one_followed_but_not_all(epochs(1, 1), slots(3, 0, &[1, 2, 2]), Decision::Nothing)]
    // The start of a JobSet is no restart.
    #[case::nobody_has_reported(epochs(0, 0), slots(2, 0, &[]), Decision::Nothing)]
    #[case::one_of_two_has_reported(epochs(0, 0), slots(2, 0, &[1]), Decision::Nothing)]
    #[case::the_first_lift(epochs(0, 0), slots(2, 0, &[1, 1]), store(1, 0, false))]
    // A Pod was deleted, its replacement has not reported: the others run on.
    #[case::a_pod_is_missing(epochs(3, 2), slots(2, 0, &[3]), Decision::Nothing)]
    #[case::its_replacement_reported(epochs(3, 2), slots(2, 0, &[3, 4]), store(3, 3, true))]
    #[case::only_the_replacement_is_there(epochs(3, 2), slots(2, 0, &[4]), store(3, 3, true))]
    // All failed before the controller saw any of it: one write lifts and counts.
    #[case::all_failed_at_once(epochs(3, 2), slots(2, 0, &[4, 4]), store(4, 3, true))]
    // Done slots.
    #[case::the_rest_runs_on(epochs(1, 0), slots(1, 1, &[1]), Decision::Nothing)]
    #[case::all_are_done(epochs(1, 0), slots(0, 2, &[]), Decision::Nothing)]
    #[case::a_late_failure(epochs(1, 0), slots(1, 1, &[2]), Decision::Recreate { counted: false })]
    #[case::a_late_failure_of_one_of_two(epochs(1, 0), slots(2, 1, &[1, 2]), Decision::Recreate { counted: false })]
    #[case::a_success_during_the_restart(epochs(1, 1), slots(1, 1, &[2]), Decision::Recreate { counted: true })]
    #[case::a_success_before_all_are_back(epochs(1, 1), slots(2, 1, &[1, 2]), Decision::Recreate { counted: true })]
    fn decide_follows_the_protocol(#[case] current: Epochs, #[case] slots: Slots, #[case] wanted: Decision) {
        assert_eq!(decide(current, &slots), wanted);
    }

    #[test]
    fn an_advance_that_the_controller_caused_is_not_counted() {
        let current = Epochs { synced: 3, deprecated: 2, free: 4 };
        let decision = decide(current, &slots(2, 0, &[3, 4]));
        let wanted = Decision::Store { epochs: Epochs { deprecated: 3, ..current }, begins_restart: false };
        assert_eq!(decision, wanted);
    }

    /// Whatever the order in which agents restart and report, an incident is counted once, and the group ends in one
    /// epoch.
    #[rstest]
    fn an_incident_is_counted_once(#[values(2, 3, 5)] pods: usize, #[values(1, 2)] failing: usize) {
        let mut reports = vec![1; pods];
        let mut current = epochs(1, 0);
        let mut counted = 0;
        reports[..failing].fill(2);
        for _ in 0..2 * pods + 2 {
            match decide(current, &slots(pods, 0, &reports)) {
                Decision::Store { epochs, begins_restart } => {
                    current = epochs;
                    counted += usize::from(begins_restart);
                }
                Decision::Nothing => {
                    // The next agent that must restart does.
                    let Some(behind) = reports.iter_mut().find(|epoch| **epoch <= current.deprecated) else { break };
                    *behind = current.synced + 1;
                }
                Decision::Recreate { .. } => panic!("no slot is done"),
            }
        }
        assert_eq!((current, counted, reports), (epochs(2, 1), 1, vec![2; pods]));
    }
}
