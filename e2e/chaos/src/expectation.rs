//! The expected state of a group after a fault: exact numbers, from the rules of the protocol.
//!
//! A restart of the group is counted in the write that raises `deprecatedEpoch` to `syncedEpoch`: once in each epoch in
//! which something failed, however many failed in it. So the number of restarts is the number of different epochs of the
//! workers that a fault ended; a worker's environment has its epoch. A worker that waits at the barrier cannot be hit, and
//! adds nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use super::facts::Facts;
use super::fault::{Fault, Mode};
use super::plan::{Hit, Step};

/// Enough for a restart in place on a machine that is busy with everything else: it takes 3 s on a quiet one.
const RECOVERY: Duration = Duration::from_mins(2);
/// How long the controller leaves a Pod alone whose agent has restarted without its worker.
const AGENT_ALONE: Duration = Duration::from_secs(10);
/// How long a standby waits for a leader that has died.
const LEASE: Duration = Duration::from_secs(15);
/// How long kube-proxy may take on a busy machine to bring back the Service of an API server that was away. Controllers that lost the
/// Lease meanwhile follow.
const SERVICE: Duration = Duration::from_mins(1);
/// What a kubelet waits before it restarts a container for the second time; twice as long each time.
const BACK_OFF_FIRST: Duration = Duration::from_secs(10);
/// The most that it waits.
const BACK_OFF_MOST: Duration = Duration::from_mins(5);

/// The workers that a fault has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Losses {
    pub(super) epochs: BTreeSet<i32>,
    /// When the last of them was hit, in seconds since 1970.
    pub(super) at: f64,
    /// The reason that the kubelet reported, where the fault asks for it.
    pub(super) reported: Option<String>,
}

/// The expected state of a group, compared with the one before a fault.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Expectation {
    /// Restarts of the group: all counted, and as many epochs.
    pub(super) restarts: i32,
    /// Those of them that recreate all Pods.
    pub(super) recreations: i32,
    /// Slots that have another Pod afterwards. All others keep theirs.
    pub(super) replaced: BTreeSet<String>,
    /// In which time.
    pub(super) within: Duration,
}

impl Expectation {
    /// Nothing happened to the group. It must not have noticed anything.
    pub(super) fn untouched() -> Self {
        Self::default()
    }

    /// The expected state after a step, for a group that was hit.
    pub(super) fn of(step: &Step, hit: &Hit, losses: &Losses, before: &Facts) -> Self {
        let restarts = i32::try_from(losses.epochs.len()).unwrap_or(i32::MAX);
        let victim = || before.pods.get(hit.victim).map(|pod| pod.slot.clone()).into_iter().collect();
        let all = || before.pods.iter().map(|pod| pod.slot.clone()).collect();
        let (recreations, replaced) = match (step.fault, hit.mode) {
            // What has succeeded cannot come back in place.
            (Fault::WorkerKilledAfterSuccess, _) => (1, all()),
            // A sidecar that gets SIGTERM exits 0, which its rules do not answer with a restart of the Pod: it comes back
            // alone, and its worker runs on in an epoch that is over until the controller deletes the Pod.
            (Fault::PodDeleted, _) | (Fault::AgentTerminated, Mode::Sidecar) => (0, victim()),
            _ => (0, BTreeSet::new()),
        };
        Self { restarts, recreations, replaced, within: within(step, hit, before) }
    }
}

/// The longest that the group may take, from the end of the fault.
fn within(step: &Step, hit: &Hit, before: &Facts) -> Duration {
    let restarts = before.pods.get(hit.victim).map_or(0, |pod| pod.restarts);
    let own = match (step.fault, hit.mode) {
        (Fault::AgentTerminated, Mode::Sidecar) => AGENT_ALONE,
        // The agent is the first process of the worker's container, which the kubelet restarts by itself.
        (
            Fault::AgentTerminated | Fault::AgentKilled | Fault::AgentOutOfMemory | Fault::AgentAndWorkerKilled,
            Mode::Supervisor,
        ) => back_off(restarts),
        (Fault::LeaderKilled | Fault::LeaderStopped, _) => LEASE,
        (Fault::ApiServerRestarted, _) => SERVICE + LEASE,
        _ => Duration::ZERO,
    };
    RECOVERY + own
}

/// How long a kubelet waits before it restarts a container that it has restarted so often before.
fn back_off(restarts: i32) -> Duration {
    let doublings = match u32::try_from(restarts) {
        Ok(restarts) if restarts > 0 => restarts - 1,
        _ => return Duration::ZERO,
    };
    2_u32.checked_pow(doublings).map_or(BACK_OFF_MOST, |factor| BACK_OFF_FIRST * factor).min(BACK_OFF_MOST)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use rstest::rstest;

    use super::super::facts::PodFacts;
    use super::*;

    const SLOTS: [&str; 4] = ["g-w-0-0", "g-w-0-1", "g-w-1-0", "g-w-1-1"];

    fn before() -> Facts {
        let pod = |slot: &&str| PodFacts { slot: (*slot).to_owned(), ..PodFacts::default() };
        Facts { pods: SLOTS.iter().map(pod).collect(), ..Facts::default() }
    }

    fn expected(fault: Fault, mode: Mode, epochs: &[i32]) -> Expectation {
        let hit = Hit { mode, victim: 1, second: 2 };
        let zero = Duration::ZERO;
        let step = Step {
            fault,
            hits: vec![hit.clone()],
            pause: zero,
            apart: zero,
            delay: zero,
            in_restart: false,
            outage: zero,
            node: 0,
        };
        Expectation::of(
            &step,
            &hit,
            &Losses { epochs: epochs.iter().copied().collect(), ..Losses::default() },
            &before(),
        )
    }

    #[rstest]
    #[case::one(Fault::WorkerKilled, &[3], 1)]
    #[case::all_in_one_epoch(Fault::AllWorkersKilled, &[3, 3, 3, 3], 1)]
    #[case::two_in_one_epoch(Fault::TwoWorkersKilled, &[3, 3], 1)]
    #[case::the_second_one_after_the_restart(Fault::TwoWorkersKilled, &[3, 4], 2)]
    #[case::five_times(Fault::SameWorkerKilled, &[3, 4, 5, 6, 7], 5)]
    fn epoch_with_lost_workers_counts_once(#[case] fault: Fault, #[case] epochs: &[i32], #[case] restarts: i32) {
        for mode in Mode::ALL {
            assert_eq!(expected(fault, mode, epochs).restarts, restarts);
        }
    }

    #[test]
    fn pods_are_replaced_by_few_faults() {
        for fault in Fault::value_variants() {
            for mode in Mode::ALL {
                let expected = expected(*fault, mode, &[1]);
                let replaced: Vec<&str> = expected.replaced.iter().map(String::as_str).collect();
                let wanted = match (fault, mode) {
                    (Fault::PodDeleted, _) | (Fault::AgentTerminated, Mode::Sidecar) => &SLOTS[1..2],
                    (Fault::WorkerKilledAfterSuccess, _) => &SLOTS[..],
                    _ => &[],
                };
                assert_eq!((replaced.as_slice(), expected.recreations), (wanted, i32::from(wanted.len() == 4)));
            }
        }
    }

    #[rstest]
    #[case(0, 0)]
    #[case(1, 10)]
    #[case(2, 20)]
    #[case(5, 160)]
    #[case(6, 300)]
    #[case(60, 300)]
    fn back_off_doubles_as_the_kubelets(#[case] restarts: i32, #[case] seconds: u64) {
        assert_eq!(back_off(restarts), Duration::from_secs(seconds));
    }
}
