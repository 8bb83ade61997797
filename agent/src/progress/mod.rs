//! The progress of a worker, as it tells of it: what was read at which time, and what follows. A state machine without clock or I/O.
//!
//! Each reading of the file and of the output is [`ProgressState::read`]. Whatever a worker tells counts as a sign of progress, except
//! that its step does not fall: of a line with a lower step, the step is left out. The file alone knows of phases, so the output ends one
//! only with a higher step.

#[cfg(test)]
mod healthy;
mod limits;
mod line;
mod pattern;
mod report;
#[cfg(test)]
mod tests;
mod told;

use std::cmp::Reverse;
use std::time::Duration;

use jobset_protocol::agent::STEPS_TOLD_EVERY;
use limits::Phase;
pub use limits::{Pauses, StallAfter, StallLimits};
pub use line::ProgressLine;
pub use pattern::{MatchedSteps, StepReader};
pub use report::{LONGEST_REPORT, StallReport, text};
pub use told::Told;

/// Time between two readings.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// The same from the first sign of a worker to its first step: of one that makes its first steps and hangs, two have to be seen.
const FIRST_INTERVAL: Duration = Duration::from_millis(200);
/// The same when a stall is about to begin.
const LEAST_INTERVAL: Duration = Duration::from_millis(20);
/// Most time that one reading adds. An agent that did not run, because its node or its container was frozen, has not seen that its
/// worker did.
const MOST_BETWEEN_READINGS: Duration = Duration::from_secs(5);
/// How long before its limit a worker is looked at for the first time. The second look is at the limit.
const LOOK_BEFORE: Duration = Duration::from_secs(5);
/// Phase in which a worker writes a checkpoint.
const CHECKPOINT: &str = "checkpoint";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressOutput {
    /// Look at the processes of the worker: a stall may begin soon.
    Look,
    /// A stall begins. The worker has made no progress for this time.
    Stalled { silent: Duration },
    /// A stall has ended.
    Resumed,
    /// A worker of this Pod has told of progress for the first time.
    First,
    /// The step has risen, and some time has passed since that was last said.
    Advanced,
}

/// What is known of a worker's progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgressFacts {
    /// `None` if an earlier agent of the Pod has started the worker.
    pub epoch: Option<i32>,
    pub step: Option<i64>,
    pub checkpoint: Option<i64>,
    pub phase: Option<String>,
    pub within: Option<String>,
    /// The longest pause that a worker of this agent has survived.
    pub pause: Duration,
}

/// The progress of the workers of a Pod, one after the other.
#[derive(Clone, Debug)]
pub struct ProgressState {
    limits: StallLimits,
    /// The longest pause of the JobSet, as its status says.
    group_pause: Duration,
    pauses: Pauses,
    /// Whether a worker of the Pod has ever told of progress. One that never does makes no stall.
    has_told: bool,
    worker: Option<WorkerProgress>,
    /// What the last worker told, once that has ended.
    ended: ProgressFacts,
}

#[derive(Clone, Debug)]
struct WorkerProgress {
    epoch: i32,
    read_at: Duration,
    /// For how long it has told of no progress.
    silent: Duration,
    has_told: bool,
    has_stepped: bool,
    step: Option<i64>,
    checkpoint: Option<i64>,
    phase: Option<(String, Option<Duration>)>,
    within: Option<String>,
    /// The step that it told last, also if that has fallen.
    last: Option<i64>,
    /// That step when it declared the phase, and what it is in; and when that was.
    declared_at: (Option<i64>, Duration),
    attention: Attention,
    /// The step that was last reported, and for how long it has not been.
    said: Option<i64>,
    unsaid: Duration,
}

/// What became of the silence of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attention {
    Calm,
    /// It was looked at, because a stall may begin soon.
    Looked,
    Stalled,
    /// It was asked to end, and makes no stall.
    Ending,
}

impl ProgressState {
    pub fn new(limits: StallLimits) -> Self {
        Self {
            limits,
            group_pause: Duration::ZERO,
            pauses: Pauses::default(),
            has_told: false,
            worker: None,
            ended: ProgressFacts::default(),
        }
    }

    /// The file of a worker that an earlier agent of this Pod has started, in this epoch if that is known.
    pub fn left(&mut self, epoch: Option<i32>, line: &ProgressLine) {
        self.has_told = true;
        self.ended = ProgressFacts { epoch, step: line.step, checkpoint: line.checkpoint, ..ProgressFacts::default() };
    }

    /// The longest pause that the status of the JobSet has.
    pub fn survived_by_group(&mut self, pause: Duration) {
        self.group_pause = pause;
    }

    pub fn begin(&mut self, epoch: i32, now: Duration) {
        self.pauses = Pauses { stalled: Duration::ZERO, stepped: Duration::ZERO, steps: 0, ..self.pauses };
        self.worker = Some(WorkerProgress {
            epoch,
            read_at: now,
            silent: Duration::ZERO,
            has_told: false,
            has_stepped: false,
            step: None,
            checkpoint: None,
            phase: None,
            within: None,
            last: None,
            declared_at: (None, Duration::ZERO),
            attention: Attention::Calm,
            said: None,
            unsaid: Duration::ZERO,
        });
    }

    /// The worker was asked to end: from now on, it makes no stall.
    pub fn stop(&mut self) {
        if let Some(worker) = &mut self.worker {
            worker.attention = Attention::Ending;
        }
    }

    pub fn end(&mut self) {
        if let Some(facts) = self.facts() {
            self.ended = facts;
        }
        self.worker = None;
    }

    pub fn has_worker(&self) -> bool {
        self.worker.is_some()
    }

    /// Whether the worker that runs makes no progress.
    pub fn is_stalled(&self) -> bool {
        self.worker.as_ref().is_some_and(|worker| worker.attention == Attention::Stalled)
    }

    /// What is known of the worker that runs, or of the last one. `None` if no worker of the Pod has told of anything.
    pub fn facts(&self) -> Option<ProgressFacts> {
        let pause = self.pauses.longest;
        let facts = match &self.worker {
            Some(worker) => ProgressFacts {
                epoch: Some(worker.epoch),
                step: worker.step,
                checkpoint: worker.checkpoint,
                phase: worker.phase.as_ref().map(|(name, _)| name.clone()),
                within: worker.within.clone(),
                pause,
            },
            None => ProgressFacts { pause, phase: None, within: None, ..self.ended.clone() },
        };
        self.has_told.then_some(facts)
    }

    /// The same for a report of this epoch. A worker of an unknown epoch has run in the one before the first report.
    pub fn facts_before(&mut self, epoch: i32) -> Option<ProgressFacts> {
        self.ended.epoch.get_or_insert(epoch - 1);
        self.facts()
    }

    /// Takes a reading: what the worker has told since the last one, if anything. Times are those since any fixed moment.
    pub fn read(&mut self, now: Duration, mut told: Vec<Told>) -> Vec<ProgressOutput> {
        let limit = self.limit();
        let Some(worker) = &mut self.worker else { return Vec::new() };
        let passed = now.saturating_sub(worker.read_at).min(MOST_BETWEEN_READINGS);
        worker.read_at = now;
        worker.silent += passed;
        worker.unsaid += passed;
        let mut outputs = Vec::new();
        if !told.is_empty() {
            if !std::mem::replace(&mut self.has_told, true) {
                outputs.push(ProgressOutput::First);
            }
            told.sort_by_key(|told| Reverse(told.age()));
            for told in told {
                worker.survive(told.ago.min(passed), told.line.step, &mut self.pauses);
                worker.take(told, now, &mut self.pauses);
            }
            worker.has_told = true;
            if worker.attention == Attention::Stalled {
                outputs.push(ProgressOutput::Resumed);
            }
            if worker.attention != Attention::Ending {
                worker.attention = Attention::Calm;
            }
            if outputs.is_empty() && worker.step > worker.said && worker.unsaid >= STEPS_TOLD_EVERY {
                outputs.push(ProgressOutput::Advanced);
            }
        } else if let Some(limit) = limit {
            if worker.silent >= limit {
                worker.attention = Attention::Stalled;
                outputs.push(ProgressOutput::Stalled { silent: worker.silent });
            } else if worker.attention == Attention::Calm
                && worker.silent >= (limit / 2).max(limit.saturating_sub(LOOK_BEFORE))
            {
                worker.attention = Attention::Looked;
                outputs.push(ProgressOutput::Look);
            }
        }
        if outputs.iter().any(|output| *output != ProgressOutput::Look) {
            (worker.said, worker.unsaid) = (worker.step, Duration::ZERO);
        }
        outputs
    }

    /// When to read next, as a time from now.
    pub fn next_reading(&self) -> Duration {
        let left = self.limit().zip(self.worker.as_ref()).map(|(limit, worker)| limit.saturating_sub(worker.silent));
        let begins = self.worker.as_ref().is_some_and(|worker| worker.has_told && !worker.has_stepped);
        let most = if begins { FIRST_INTERVAL } else { READ_INTERVAL };
        left.map_or(most, |left| left.clamp(LEAST_INTERVAL, most))
    }

    /// For how long the worker that runs may be silent in all. `None` if it makes no stall, or is in one.
    fn limit(&self) -> Option<Duration> {
        let is_watched = |worker: &&WorkerProgress| matches!(worker.attention, Attention::Calm | Attention::Looked);
        let worker = self.worker.as_ref().filter(|worker| self.has_told && is_watched(worker))?;
        let pauses = Pauses { longest: self.pauses.longest.max(self.group_pause), ..self.pauses };
        self.limits.limit(&pauses, worker.limited())
    }
}

impl WorkerProgress {
    /// The worker has told of progress after a pause, some time ago, perhaps of a step.
    fn survive(&mut self, ago: Duration, step: Option<i64>, pauses: &mut Pauses) {
        let pause = self.silent.saturating_sub(ago);
        self.silent = self.silent.min(ago);
        if self.attention == Attention::Stalled {
            pauses.stalled = pauses.stalled.max(pause);
        }
        if !self.has_stepped {
            // These say nothing about pauses between steps.
            if self.limited() == Phase::First {
                pauses.first = pauses.first.max(pause);
            }
            return;
        }
        pauses.longest = pauses.longest.max(pause);
        pauses.regular += pause;
        if self.phase.is_some() {
            pauses.declared = pauses.declared.max(pause);
        } else if pauses.is_long(pause, self.steps_up_to(step).max(1)) {
            pauses.regular = Duration::ZERO;
        }
        pauses.stepped += pause;
    }

    /// How many steps there are up to this one.
    fn steps_up_to(&self, step: Option<i64>) -> u32 {
        let risen = step.zip(self.step).map_or(0, |(step, before)| step.saturating_sub(before).max(0));
        u32::try_from(risen).unwrap_or(u32::MAX)
    }

    fn take(&mut self, told: Told, now: Duration, pauses: &mut Pauses) {
        let at = now.saturating_sub(told.age());
        let Told { line, is_output, .. } = told;
        if line.is_empty() {
            // A worker that only touches the file makes a step with each touch.
            if self.step.is_none() && self.phase.is_none() {
                pauses.steps = pauses.steps.saturating_add(u32::from(self.has_stepped));
                self.has_stepped = true;
            }
            return;
        }
        // The output is perhaps about the time before the phase, or about its step.
        let (declared_step, declared_at) = self.declared_at;
        let is_in_phase = is_output && (at <= declared_at || line.step <= declared_step);
        let has_fallen = line.step.is_some_and(|step| Some(step) < self.step);
        // A worker that begins again at an earlier step has perhaps not ended its checkpoint.
        let has_left_checkpoint = |phase: &(String, _)| {
            !is_in_phase && !has_fallen && phase.0 == CHECKPOINT && line.phase.as_deref() != Some(CHECKPOINT)
        };
        if self.phase.as_ref().is_some_and(has_left_checkpoint) {
            self.checkpoint = self.checkpoint.max(self.step);
        }
        self.checkpoint = self.checkpoint.max(line.checkpoint);
        self.last = line.step.or(self.last);
        if let Some(step) = line.step.filter(|_| !has_fallen) {
            pauses.steps = pauses.steps.saturating_add(self.steps_up_to(line.step));
            // With its first line, a worker may say where it begins.
            self.has_stepped |= self.step.is_some_and(|before| step > before);
            self.step = Some(step);
        }
        if !is_in_phase {
            self.phase = line.phase.map(|phase| (phase, line.limit));
            self.within = line.within;
            self.declared_at = (self.last, at);
        }
    }

    fn limited(&self) -> Phase {
        match &self.phase {
            Some((_, Some(limit))) => Phase::Limited(*limit),
            Some((_, None)) if self.has_stepped => Phase::Unlimited,
            None if self.has_stepped => Phase::Steps,
            _ => Phase::First,
        }
    }
}
