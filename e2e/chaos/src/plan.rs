//! Which faults come when, from a seed alone: the same seed gives the same plan.

use std::time::Duration;

use super::fault::{Fault, Mode};

pub(super) const WORKERS: usize = 4;
pub const NODES: usize = 2;

/// Longest pause before a fault. A kubelet looks at its containers once a second, so that faults fall into each part of
/// that second.
const PAUSE: Duration = Duration::from_secs(2);
/// Longest time between the two parts of a fault that has two: longer than a restart in place takes.
const APART: Duration = Duration::from_secs(4);
/// Shortest and longest time for which something is stopped: not so long that the node counts as lost (40 s).
const OUTAGE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(8));

/// One fault, ready to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) fault: Fault,
    /// To whom. Groups that are not named must not notice anything.
    pub(super) hits: Vec<Hit>,
    /// Before it begins.
    pub(super) pause: Duration,
    /// Until its second part: another worker, or the worker that goes while the cluster is disturbed.
    pub(super) apart: Duration,
    /// Until the cluster is disturbed: before the worker goes, or after it.
    pub(super) delay: Duration,
    /// Whether the cluster is disturbed in the middle of the restart, or at a moment of its own.
    pub(super) in_restart: bool,
    /// How long what is stopped stays so.
    pub(super) outage: Duration,
    /// The node whose kubelet is stopped.
    pub(super) node: usize,
}

impl Step {
    pub(super) fn hit(&self, mode: Mode) -> Option<&Hit> {
        self.hits.iter().find(|hit| hit.mode == mode)
    }
}

/// The part of a step that concerns one group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hit {
    pub(super) mode: Mode,
    /// The slot that is hit, below [`WORKERS`].
    pub(super) victim: usize,
    /// Another slot, for faults of two workers.
    pub(super) second: usize,
}

/// The steps, without end. They come in rounds: none is repeated before each of its round was there.
pub(super) struct Plan {
    random: fastrand::Rng,
    /// What a round has, with the groups that it hits.
    kinds: Vec<(Fault, Vec<Mode>)>,
    /// What is left of this round.
    round: Vec<(Fault, Vec<Mode>)>,
}

impl Plan {
    pub(super) fn new(seed: u64, faults: &[Fault], modes: &[Mode]) -> Self {
        let kinds = faults.iter().flat_map(|fault| {
            let at_once = if fault.is_of_cluster() { 1 } else { modes.len().max(1) };
            modes.chunks(at_once).map(|modes| (*fault, modes.to_vec()))
        });
        Self { random: fastrand::Rng::with_seed(seed), kinds: kinds.collect(), round: Vec::new() }
    }

    pub(super) fn steps_of_a_round(&self) -> usize {
        self.kinds.len()
    }

    fn hit(&mut self, mode: Mode) -> Hit {
        let victim = self.random.usize(..WORKERS);
        let second = (victim + self.random.usize(1..WORKERS)) % WORKERS;
        Hit { mode, victim, second }
    }

    fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        shortest + longest.saturating_sub(shortest).mul_f64(self.random.f64())
    }
}

impl Iterator for Plan {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.round.is_empty() {
            self.round.clone_from(&self.kinds);
            self.random.shuffle(&mut self.round);
        }
        let (fault, modes) = self.round.pop()?;
        Some(Step {
            fault,
            hits: modes.into_iter().map(|mode| self.hit(mode)).collect(),
            pause: self.between(Duration::ZERO, PAUSE),
            apart: self.between(Duration::ZERO, APART),
            delay: self.between(Duration::ZERO, APART),
            in_restart: fault.ends_connections() || self.random.bool(),
            outage: self.between(OUTAGE.0, OUTAGE.1),
            node: self.random.usize(..NODES),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    fn plan(seed: u64) -> Plan {
        Plan::new(seed, Fault::value_variants(), &Mode::ALL)
    }

    #[test]
    fn seed_decides_the_plan() {
        let steps = |seed| plan(seed).take(60).collect::<Vec<_>>();
        assert_eq!(steps(7), steps(7));
        assert_ne!(steps(7), steps(8));
    }

    #[test]
    fn round_has_every_fault_for_every_group_once() {
        let size = plan(1).steps_of_a_round();
        let steps: Vec<Step> = plan(1).take(5 * size).collect();
        for round in steps.chunks(size) {
            for fault in Fault::value_variants() {
                let hits = round.iter().filter(|step| step.fault == *fault).flat_map(|step| &step.hits);
                let mut modes: Vec<Mode> = hits.map(|hit| hit.mode).collect();
                modes.sort();
                assert_eq!(modes, Mode::ALL, "{fault}");
            }
        }
    }

    #[test]
    fn step_has_two_victims_and_bounded_times() {
        for step in plan(2).take(500) {
            assert!(step.hits.iter().all(|hit| hit.victim != hit.second && hit.victim.max(hit.second) < WORKERS));
            assert!(step.pause <= PAUSE && step.apart <= APART && step.delay <= APART && step.node < NODES);
            assert!(step.outage >= OUTAGE.0 && step.outage <= OUTAGE.1);
        }
    }

    #[test]
    fn every_cluster_fault_comes_during_restarts() {
        for fault in Fault::value_variants().iter().filter(|fault| fault.is_of_cluster()) {
            let steps: Vec<Step> = plan(3).take(500).filter(|step| step.fault == *fault).collect();
            assert!(steps.iter().any(|step| step.in_restart), "{fault}");
            assert_eq!(steps.iter().all(|step| step.in_restart), fault.ends_connections(), "{fault}");
        }
    }

    #[test]
    fn plan_without_faults_has_no_steps() {
        assert_eq!(Plan::new(1, &[], &Mode::ALL).next(), None);
    }
}
