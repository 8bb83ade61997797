//! Which worker of which training hangs, how, and when: all of it follows from the seed.

use std::fmt;

use crate::training::WORKERS;

/// Hangs of one training: one in each epoch.
const MOST_HANGS: usize = 10;
/// Steps from a hang to the next one, at most. The steps since the last checkpoint are done again.
const STRIDE: usize = 15;
/// Steps from the begin of a stride to a hang.
const FIRST_STEP: usize = 5;
/// Steps from a checkpoint to the next one.
pub(super) const CHECKPOINT_EVERY: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its process is stopped by a signal, from outside, anywhere in a step.
    Stop,
    /// It waits for a lock that it holds.
    Deadlock,
    /// The disk hangs to which it writes a checkpoint.
    Disk,
    /// It says nothing any longer, and its connections stay.
    Peer,
    /// It computes without end.
    Loop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hang {
    pub(super) kind: Kind,
    pub(super) rank: usize,
    /// From this step on: in it, or in the next checkpoint.
    pub(super) step: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) shape: &'static str,
    /// One in each epoch.
    pub(super) hangs: Vec<Hang>,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [Self::Stop, Self::Deadlock, Self::Disk, Self::Peer, Self::Loop];
}

impl fmt::Display for Kind {
    /// As `HANG` of the training has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stop => "stop",
            Self::Deadlock => "deadlock",
            Self::Disk => "disk",
            Self::Peer => "peer",
            Self::Loop => "loop",
        })
    }
}

impl Plan {
    /// So many hangs of a seed, in trainings of which at least so many run at once.
    pub(super) fn all(seed: u64, hangs: usize, at_once: usize) -> Vec<Self> {
        let mut random = fastrand::Rng::with_seed(seed);
        let of_each = hangs.div_ceil(at_once).clamp(1, MOST_HANGS);
        let number_of = |training: usize| of_each.min(hangs - training * of_each);
        let trainings = 0..hangs.div_ceil(of_each);
        trainings
            .map(|training| Self {
                name: format!("training-{training}"),
                shape: ["Sidecar", "Supervisor"][training % 2],
                hangs: (0..number_of(training)).map(|place| Hang::new(&mut random, place)).collect(),
            })
            .collect()
    }

    /// The variable `HANG` of the training. A sidecar's worker is the first process of its container, which cannot stop itself.
    pub(super) fn variable(&self) -> String {
        let text = |hang: &Hang| match hang.kind {
            Kind::Stop => String::new(),
            kind => format!("{kind}:{}:{}", hang.rank, hang.step),
        };
        self.hangs.iter().map(text).collect::<Vec<_>>().join(",")
    }
}

impl Hang {
    fn new(random: &mut fastrand::Rng, place: usize) -> Self {
        Self {
            kind: Kind::ALL[random.usize(..Kind::ALL.len())],
            rank: random.usize(..WORKERS),
            step: place * STRIDE + FIRST_STEP + random.usize(..FIRST_STEP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_gives_as_many_hangs_as_asked_for() {
        for (hangs, trainings) in [(1, 1), (20, 4), (200, 20), (201, 21)] {
            let plans = Plan::all(7, hangs, 4);
            assert_eq!((plans.iter().map(|plan| plan.hangs.len()).sum::<usize>(), plans.len()), (hangs, trainings));
            assert_eq!(plans, Plan::all(7, hangs, 4));
        }
        assert_ne!(Plan::all(7, 20, 4), Plan::all(8, 20, 4));
    }
}
