//! What the workers wrote down: the loss of each step, checkpoints, and where they went on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// Number of workers, `completions` of the manifest.
pub(crate) const WORKERS: usize = 4;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Line {
    /// Absent in the line of a step.
    pub(super) event: Option<String>,
    /// Number of steps that were made, or at a resumption, of those in the checkpoint.
    #[serde(default)]
    pub(crate) step: usize,
    pub(super) epoch: i32,
    /// Seconds since 1970.
    pub(crate) time: f64,
    /// Hash of the parameters, at the end.
    sha256: Option<String>,
    #[serde(skip)]
    loss: Option<f64>,
}

impl Line {
    /// Reads a line. `serde_json` may read a float that differs in the last bit, the standard library does not.
    fn read(text: &str) -> Result<Self> {
        let mut line: Self = serde_json::from_str(text)?;
        if let Some((_, rest)) = text.split_once("\"loss\": ") {
            let number = rest.split([',', '}']).next().unwrap_or_default();
            line.loss = Some(number.parse().with_context(|| format!("{number} is no number"))?);
        }
        Ok(line)
    }

    pub(super) fn is_step(&self) -> bool {
        self.loss.is_some()
    }

    pub(super) fn is(&self, event: &str) -> bool {
        self.event.as_deref() == Some(event)
    }
}

/// The file of a worker below the folder of its group.
fn file(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("log-{rank}.jsonl"))
}

/// The last step that a worker has made, if it has made one.
pub(super) fn last_step(folder: &Path, rank: usize) -> Result<Option<Line>> {
    let Ok(text) = std::fs::read_to_string(file(folder, rank)) else { return Ok(None) };
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut lines = whole.lines().rev().filter(|line| !line.is_empty()).map(Line::read);
    lines.find(|line| line.as_ref().ok().is_none_or(Line::is_step)).transpose()
}

/// The lines of all workers of a group, by rank.
pub(super) struct Log {
    pub(super) workers: Vec<Vec<Line>>,
}

impl Log {
    /// Reads the files. A line that a killed worker did not finish is left out.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let worker = |rank| {
            let path = file(folder, rank);
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let whole = text.lines().filter(|line| line.ends_with('}'));
            whole.map(|line| Line::read(line).with_context(|| format!("{}: {line}", path.display()))).collect()
        };
        Ok(Self { workers: (0..WORKERS).map(worker).collect::<Result<_>>()? })
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.workers.iter().flatten()
    }

    /// Number of the last step.
    pub(super) fn steps(&self) -> usize {
        self.lines().filter(|line| line.is_step()).map(|line| line.step).max().unwrap_or(0)
    }

    /// Lines of steps that one worker has written more than once.
    pub(super) fn repeated(&self) -> usize {
        self.workers.iter().map(|lines| repeated(lines)).max().unwrap_or(0)
    }

    /// Seconds from the first step to the last one.
    pub(super) fn seconds(&self) -> f64 {
        let times = || self.lines().filter(|line| line.is_step()).map(|line| line.time);
        times().fold(0.0, f64::max) - times().fold(f64::MAX, f64::min)
    }

    /// Losses that all workers have written.
    pub(super) fn losses(&self) -> usize {
        self.lines().filter(|line| line.is_step()).count()
    }

    /// The bits of the loss of each step, of which all workers have to have written the same, however often. A worker may
    /// have been killed before it wrote down a step of which others have a checkpoint, and then have got that checkpoint.
    fn curve(&self) -> Result<BTreeMap<usize, u64>> {
        let mut curve = BTreeMap::new();
        let skipped: BTreeSet<usize> = self.lines().filter(|line| line.is("resume")).map(|line| line.step).collect();
        for (rank, lines) in self.workers.iter().enumerate() {
            let mut steps = BTreeSet::new();
            for (line, loss) in lines.iter().filter_map(|line| Some((line, line.loss?))) {
                let known = *curve.entry(line.step).or_insert(loss.to_bits());
                if known != loss.to_bits() {
                    bail!(
                        "step {}: {:?}, and {loss:?} of worker {rank} in epoch {}",
                        line.step,
                        f64::from_bits(known),
                        line.epoch
                    );
                }
                steps.insert(line.step);
            }
            let missing = (1..=self.steps()).find(|step| !steps.contains(step) && !skipped.contains(step));
            ensure!(missing.is_none(), "worker {rank} has not made step {missing:?}");
        }
        Ok(curve)
    }

    /// The hash of the parameters that all workers ended with.
    fn parameters(&self) -> Result<&str> {
        let ends = self.lines().filter(|line| line.is("end")).map(|line| line.sha256.as_deref().unwrap_or_default());
        let ends: Vec<&str> = ends.collect();
        let same = ends.len() == WORKERS && ends.iter().all(|it| *it == ends[0]);
        ends.first().filter(|_| same).copied().with_context(|| format!("parameters of the workers: {ends:?}"))
    }

    /// Fails unless each loss, and the parameters in the end, equal those of the other run, bit by bit.
    pub(super) fn ensure_curve_of(&self, other: &Self) -> Result<()> {
        let (own, expected) = (self.curve()?, other.curve()?);
        let differs = expected.iter().find(|(step, loss)| own.get(step) != Some(loss));
        if let Some((step, loss)) = differs {
            let (own, expected) = (own.get(step).map(|bits| f64::from_bits(*bits)), f64::from_bits(*loss));
            bail!("the loss of step {step} is {own:?}, and {expected:?} in the undisturbed run");
        }
        ensure!(own.len() == expected.len(), "{} steps, not {}", own.len(), expected.len());
        ensure!(own.keys().copied().eq(1..=own.len()), "nobody has made some of {} steps", own.len());
        ensure!(self.parameters()? == other.parameters()?, "the parameters in the end differ");
        Ok(())
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loss = |line: &Line| line.loss.unwrap_or_default();
        let mut steps = self.workers.iter().flatten().filter(|line| line.is_step());
        let first = steps.next().map(loss).unwrap_or_default();
        let last = steps.next_back().map(loss).unwrap_or_default();
        write!(
            f,
            "{} steps in {:.1} s, loss {first:.4} at first and {last:.4} in the end",
            self.steps(),
            self.seconds()
        )
    }
}

fn repeated(lines: &[Line]) -> usize {
    let mut known = BTreeSet::new();
    lines.iter().filter(|line| line.is_step() && !known.insert(line.step)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(losses: [&str; WORKERS]) -> Result<Log> {
        let worker = |loss: &&str| {
            let step = format!(r#"{{"step": 1, "loss": {loss}, "epoch": 1, "time": 5.0}}"#);
            let end = r#"{"event": "end", "step": 1, "sha256": "ab", "epoch": 1, "time": 6.0}"#;
            [step.as_str(), end].map(Line::read).into_iter().collect::<Result<Vec<_>>>()
        };
        Ok(Log { workers: losses.iter().map(worker).collect::<Result<_>>()? })
    }

    #[test]
    fn loss_that_differs_in_last_bit_is_found() -> Result<()> {
        let (one, next) = ("0.1", "0.10000000000000002");
        log([one; WORKERS])?.ensure_curve_of(&log([one; WORKERS])?)?;
        let among_workers = log([one, one, next, one])?.ensure_curve_of(&log([one; WORKERS])?);
        assert_eq!(
            among_workers.unwrap_err().to_string(),
            "step 1: 0.1, and 0.10000000000000002 of worker 2 in epoch 1"
        );
        let among_runs = log([next; WORKERS])?.ensure_curve_of(&log([one; WORKERS])?);
        assert!(among_runs.unwrap_err().to_string().contains("the loss of step 1 is Some(0.10000000000000002)"));
        Ok(())
    }
}
