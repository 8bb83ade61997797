//! Kills workers of a training at random steps.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result};
use jobset_harness::journal::now;
use jobset_harness::process::Signal;
use jobset_harness::progress::progress;

use super::group::Group;
use super::log::WORKERS;

const KILLS: usize = 12;
/// The longest time from a step to the kill, in milliseconds: as long as some steps, or a checkpoint, take.
const DELAY: Range<u64> = 0..60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// By SIGKILL.
    Killed,
    /// By itself when it gets SIGTERM, with exit code 143.
    Exits,
    /// By an exception of Python, with exit code 130.
    Raises,
}

/// What is done to which worker.
#[derive(Clone, Debug)]
pub(super) struct Kill {
    /// The worker has made this step, or a later one.
    pub(super) step: usize,
    pub(super) rank: usize,
    pub(super) how: How,
    delay: Duration,
}

pub(super) struct Plan {
    pub(super) kills: Vec<Kill>,
}

pub(super) struct Killed {
    pub(super) kill: Kill,
    pub(super) epoch: i32,
    /// Seconds since 1970.
    pub(super) time: f64,
    /// Whether the status of the JobSet names the Pod of that worker as the cause of the restart.
    pub(super) named: bool,
}

impl Plan {
    /// The kills of a seed, for a training of so many steps. There is none in the last tenth: a worker that fails after
    /// another one has succeeded cannot restart in place.
    pub(super) fn new(seed: u64, steps: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let kill = |_| Kill {
            step: random.usize(1..steps - steps / 10),
            rank: random.usize(..WORKERS),
            how: [How::Killed, How::Exits, How::Raises][random.usize(..3)],
            delay: Duration::from_millis(random.u64(DELAY)),
        };
        let mut kills: Vec<Kill> = (0..KILLS).map(kill).collect();
        kills.sort_by_key(|kill| kill.step);
        Self { kills }
    }
}

/// Carries a plan out. After each kill the group has restarted in place once, and all Pods are the same.
pub(super) async fn carry_out(group: &Group, plan: &Plan) -> Result<Vec<Killed>> {
    let mut killed = Vec::new();
    for (kill, epoch) in plan.kills.iter().zip(1..) {
        group.wait_for(kill.rank, epoch, kill.step).await?;
        // The kill falls anywhere into a step, or into a checkpoint.
        tokio::time::sleep(kill.delay).await;
        let time = now();
        let worker = group.process(kill.rank, epoch)?;
        worker.signal(kill.how.signal()).with_context(|| format!("cannot kill worker {}", kill.rank))?;
        for rank in 0..WORKERS {
            group.wait_for(rank, epoch + 1, 1).await?;
        }
        let status = group.ensure_restarts(killed.len() + 1).await?;
        let cause = status.recent_restarts.last().map(|restart| restart.message.clone()).unwrap_or_default();
        progress(&format!("worker {} {} at step {}: {cause}", kill.rank, kill.how, kill.step));
        let named = cause.contains(group.pod(kill.rank));
        killed.push(Killed { kill: kill.clone(), epoch, time, named });
    }
    Ok(killed)
}

impl How {
    fn signal(self) -> Signal {
        match self {
            Self::Killed => Signal::KILL,
            Self::Exits => Signal::TERM,
            Self::Raises => Signal::INT,
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Killed => "killed",
            Self::Exits => "exits",
            Self::Raises => "raises",
        })
    }
}
