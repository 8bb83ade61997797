//! What the kills cost, as a table, and whether the workers went on from their last checkpoint.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use jobset_harness::median::median;

use super::kills::Killed;
use super::log::{Line, Log, WORKERS};

/// One restart, by what the workers wrote down.
struct Recovery {
    /// The last step before the kill, by any worker.
    reached: usize,
    /// The step that the workers went on from.
    resumed: usize,
    /// From the kill to the first step after it.
    restart: f64,
    /// From the kill until the training was where it had been.
    lost: f64,
}

/// Every kill with what it cost, and the sums.
pub(super) fn table(shape: &str, kills: &[Killed], log: &Log, undisturbed: &Log) -> Result<String> {
    let recoveries = kills.iter().map(|killed| recovery(killed, log)).collect::<Result<Vec<_>>>()?;
    let mut text = format!(
        "{shape:<11} {:>6} {:<7} {:>8} {:>13} {:>9} {:>9} {:>7}\n",
        "worker", "how", "at step", "resumed from", "repeated", "restart", "lost"
    );
    for (killed, recovery) in kills.iter().zip(&recoveries) {
        let Recovery { reached, resumed, restart, lost } = recovery;
        let (rank, how, repeated) = (killed.kill.rank, killed.kill.how.to_string(), reached - resumed);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<11} {rank:>6} {how:<7} {reached:>8} {resumed:>13} {repeated:>9} {restart:>7.2} s {lost:>5.2} s",
            ""
        );
    }
    let named = kills.iter().filter(|killed| killed.named).count();
    let restarts = median(recoveries.iter().map(|recovery| recovery.restart));
    let _ = writeln!(
        text,
        "{} kills, {0} restarts in place, of which the status names the killed worker in {named}; median of a restart {restarts:.2} s",
        kills.len()
    );
    let _ = writeln!(
        text,
        "{} steps, {} of them repeated, in {:.1} s; undisturbed {:.1} s; all {} losses and the parameters equal bit by bit",
        log.steps(),
        log.repeated(),
        log.seconds(),
        undisturbed.seconds(),
        log.losses()
    );
    Ok(text)
}

fn recovery(killed: &Killed, log: &Log) -> Result<Recovery> {
    let epoch = killed.epoch;
    let before = || log.lines().filter(|line| line.epoch <= epoch);
    let reached = before().filter(|line| line.is_step() && line.epoch == epoch).map(|line| line.step).max();
    let reached = reached.with_context(|| format!("no step in epoch {epoch}"))?;
    let saved = before().filter(|line| line.is("checkpoint")).map(|line| line.step).max().unwrap_or(0);
    let begun = |line: &&Line| line.epoch == epoch + 1 && (line.is("resume") || line.is("start"));
    let resumed: Vec<usize> = log.lines().filter(begun).map(|line| line.step).collect();
    // A worker may have been killed after it wrote a checkpoint, and before it said so.
    let right = resumed.iter().all(|step| *step == resumed[0] && (saved..=reached).contains(step));
    ensure!(
        resumed.len() == WORKERS && right,
        "epoch {}: went on from {resumed:?}; the last checkpoint is of step {saved}, the last step was {reached}",
        epoch + 1
    );
    let first = |from: usize| {
        let later = log.lines().filter(|line| line.is_step() && line.epoch > epoch && line.step >= from);
        later.map(|line| line.time).fold(f64::MAX, f64::min) - killed.time
    };
    Ok(Recovery { reached, resumed: resumed[0], restart: first(1), lost: first(reached) })
}
