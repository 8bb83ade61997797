//! Follows the progress of the worker: reads its file and its output once a second, tells [`ProgressState`], and carries out what
//! follows. An agent without a file and without a pattern does nothing here.
//!
//! The file may be on a disk that hangs, so that another thread reads it. The agent itself never waits for it.

use std::sync::Arc;
use std::time::Duration;

use jobset_protocol::agent::PROGRESS_PATTERN;
use jobset_protocol::step_pattern::STEP_PATTERN;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::args::ProgressConfig;
use crate::epoch_file::LastLift;
use crate::evidence::{Evidence, FirstLook, gather, in_time, look_again};
use crate::group::GroupFacts;
use crate::progress::{MatchedSteps, ProgressLine, ProgressOutput, ProgressState, StallReport, StepReader, Told, text};
use crate::progress_file::{FileState, Stamp, open, read};
use crate::stall_command;
use crate::transport::until;

/// How long an agent waits for the file of a worker that has ended, or of an earlier one.
const LAST_READ_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub enum FollowEvent {
    /// It is time to read.
    Due,
    /// The file was read for the worker of this epoch; `None` if it is as it was, or cannot be read.
    Read { epoch: i32, read: Option<FileState> },
    /// The worker of this epoch, which makes no progress, was looked at.
    Looked { epoch: i32, evidence: Evidence },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressUpdate {
    pub text: String,
    /// Whether it is reported without a stream as well.
    pub is_urgent: bool,
}

/// Follows the workers of a Pod, one after the other.
#[derive(Debug)]
pub struct Follower {
    config: ProgressConfig,
    state: ProgressState,
    steps: MatchedSteps,
    group: Arc<GroupFacts>,
    started: Instant,
    /// The state of the file that was last taken.
    known: Option<(Stamp, ProgressLine)>,
    /// The time of the last text.
    told_at: Option<Timestamp>,
    due: Option<Instant>,
    is_reading: bool,
    look: Option<FirstLook>,
    stall: Option<StallReport>,
    /// Main process of a supervised worker.
    worker: Option<i32>,
    epoch: i32,
    events: (mpsc::Sender<FollowEvent>, mpsc::Receiver<FollowEvent>),
}

impl Follower {
    /// A follower of workers that have not started. Reads what an earlier worker of the Pod has told: the one that was let start last, if
    /// that is known, unless the file is older.
    pub async fn start(config: ProgressConfig, group: Arc<GroupFacts>, last_lift: Option<LastLift>) -> Self {
        if let Some(pattern) = &config.malformed_pattern {
            tracing::warn!(pattern, "{PROGRESS_PATTERN} is ignored: it must be {STEP_PATTERN}");
        }
        let mut follower = Self {
            state: ProgressState::new(config.limits),
            config,
            steps: MatchedSteps::default(),
            group,
            started: Instant::now(),
            known: None,
            told_at: None,
            due: None,
            is_reading: false,
            look: None,
            stall: None,
            worker: None,
            epoch: 0,
            events: mpsc::channel(2),
        };
        if let Some(left) = read_in_time(follower.reader()).await {
            // A worker that has told of nothing leaves the file of an earlier one, whose steps were reported before.
            let is_of_last = last_lift.as_ref().is_none_or(|lift| left.stamp.modified >= lift.modified);
            let line = if is_of_last { left.line.clone() } else { ProgressLine::default() };
            follower.state.left(last_lift.map(|lift| lift.epoch), &line);
            follower.note(Some(left));
        }
        follower
    }

    /// What reads the steps in the output of a worker, if there is a pattern.
    pub fn step_reader(&self) -> Option<StepReader> {
        Some(StepReader::new(self.config.pattern.clone()?, self.steps.clone()))
    }

    /// The worker of an epoch starts; `pid` is the main process of a supervised one.
    pub fn begin(&mut self, epoch: i32, pid: Option<i32>) {
        if self.config.is_followed() {
            self.steps.take();
            (self.worker, self.epoch) = (pid, epoch);
            (self.look, self.stall) = (None, None);
            self.state.begin(epoch, self.started.elapsed());
            self.plan();
        }
    }

    /// Sets when to read next.
    fn plan(&mut self) {
        self.due = self.state.has_worker().then(|| Instant::now() + self.state.next_reading());
    }

    /// The worker was asked to end.
    pub fn stop(&mut self) {
        self.state.stop();
    }

    /// Reads the file for the last time, once the worker has ended.
    pub fn last_reading(&self) -> impl Future<Output = Option<FileState>> + use<> {
        read_in_time(self.reader().filter(|_| self.state.has_worker()))
    }

    /// The worker has ended, and this was the last reading.
    pub fn end(&mut self, last: Option<FileState>) {
        let told = self.note(last);
        self.take(told);
        self.state.end();
        (self.due, self.look, self.stall) = (None, None, None);
    }

    /// What a report of this epoch says of the worker before. `None` if no worker has ever told of progress.
    pub fn before(&mut self, epoch: i32) -> Option<String> {
        let facts = self.state.facts_before(epoch)?;
        Some(text(&facts, facts.epoch.unwrap_or(epoch - 1), None, self.next_time()))
    }

    /// Waits for the next event. Dropping the future loses nothing.
    pub async fn next(&mut self) -> FollowEvent {
        tokio::select! {
            biased;
            Some(event) = self.events.1.recv() => event,
            () = until(self.due) => {
                self.due = None;
                FollowEvent::Due
            }
        }
    }

    /// Takes an event. Returns what is to be reported.
    pub fn on(&mut self, event: FollowEvent) -> Option<ProgressUpdate> {
        match event {
            FollowEvent::Due => {
                self.plan();
                let is_late = self.is_reading;
                match self.reader().filter(|_| !is_late) {
                    Some(reader) => {
                        self.is_reading = true;
                        let (events, epoch) = (self.events.0.clone(), self.epoch);
                        tokio::task::spawn_blocking(move || {
                            let read = reader();
                            events.blocking_send(FollowEvent::Read { epoch, read }).is_ok()
                        });
                        None
                    }
                    // The disk of the file hangs, or there is no file.
                    None => self.take(None),
                }
            }
            FollowEvent::Read { epoch, read } => {
                self.is_reading = false;
                let told = self.note(read);
                // A disk that was slow may answer for the worker before.
                let update = self.take(told.filter(|_| epoch == self.epoch));
                self.plan();
                update
            }
            FollowEvent::Looked { epoch, evidence } => {
                let stall = self.stall.as_mut().filter(|_| self.state.is_stalled() && epoch == self.epoch)?;
                stall.evidence = evidence;
                self.update(true)
            }
        }
    }

    /// Remembers the state of the file. Returns what it tells, and how long ago it was written.
    fn note(&mut self, read: Option<FileState>) -> Option<Told> {
        let FileState { stamp, line, ago } = read?;
        self.known = Some((stamp, line.clone()));
        Some(Told::by_file(line, ago))
    }

    /// Takes what the file tells, and what was read of the output.
    fn take(&mut self, told: Option<Told>) -> Option<ProgressUpdate> {
        if !self.state.has_worker() {
            return None;
        }
        let told = self.steps.take().map(Told::by_output).into_iter().chain(told).collect();
        self.state.survived_by_group(self.group.pause());
        let outputs = self.state.read(self.started.elapsed(), told);
        outputs.into_iter().filter_map(|output| self.carry_out(output)).last()
    }

    fn carry_out(&mut self, output: ProgressOutput) -> Option<ProgressUpdate> {
        match output {
            ProgressOutput::Look => {
                self.look = self.worker.map(|_| FirstLook::now());
                None
            }
            ProgressOutput::Stalled { silent } => {
                let now = Timestamp::now();
                let since = now.checked_sub(silent).unwrap_or(now);
                tracing::warn!(epoch = self.epoch, seconds = silent.as_secs(), "the worker makes no progress");
                self.stall = Some(StallReport { since, evidence: Evidence::default() });
                let (Some(worker), look) = (self.worker, self.look.take()) else { return self.update(true) };
                let (events, command, epoch) = (self.events.0.clone(), self.config.command.clone(), self.epoch);
                let command = command.map(|command| move || stall_command::run(&command, Some(worker), epoch));
                tokio::spawn(async move {
                    let looked = move || look_again(look.as_ref());
                    let evidence = gather(looked, command.map(|command| (command, stall_command::LIMIT))).await;
                    evidence.log();
                    // The receiver is closed only when the agent ends.
                    let _ = events.send(FollowEvent::Looked { epoch, evidence }).await;
                });
                None
            }
            ProgressOutput::Resumed => {
                tracing::info!(epoch = self.epoch, "the worker makes progress again");
                self.stall = None;
                self.update(true)
            }
            ProgressOutput::First => self.update(true),
            ProgressOutput::Advanced => self.update(false),
        }
    }

    fn update(&mut self, is_urgent: bool) -> Option<ProgressUpdate> {
        let facts = self.state.facts()?;
        let at = self.next_time();
        Some(ProgressUpdate { text: text(&facts, self.epoch, self.stall.as_ref(), at), is_urgent })
    }

    /// The time of the next text. Of two, the later one counts, so it rises even if the clock is set back.
    fn next_time(&mut self) -> Timestamp {
        let at = after(self.told_at, Timestamp::now());
        self.told_at = Some(at);
        at
    }

    fn reader(&self) -> Option<impl FnOnce() -> Option<FileState> + Send + use<>> {
        let (path, known) = (self.config.file.clone()?, self.known.clone());
        Some(move || read(&path, known.as_ref(), open))
    }
}

/// This time, or the next microsecond after the last one, if that is later.
fn after(last: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let now = Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now);
    let next = last.and_then(|last| last.checked_add(SignedDuration::from_micros(1)).ok());
    next.map_or(now, |next| next.max(now))
}

/// Carries out a reading on another thread. `None` if there is none, or the disk hangs.
async fn read_in_time(reader: Option<impl FnOnce() -> Option<FileState> + Send + 'static>) -> Option<FileState> {
    in_time(reader?, LAST_READ_TIMEOUT).await?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use jobset_api::ProgressReport;

    use super::*;
    use crate::progress::{StallAfter, StallLimits};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn time_of_texts_rises_if_clock_is_set_back() {
        let first = after(None, at("2026-01-01T18:00:00.1234567Z"));
        assert_eq!(first, at("2026-01-01T18:00:00.123456Z"));
        let second = after(Some(first), at("2026-01-01T10:00:00Z"));
        assert_eq!(second, at("2026-01-01T18:00:00.123457Z"));
        assert_eq!(after(Some(second), at("2026-01-01T18:00:01Z")), at("2026-01-01T18:00:01Z"));
    }

    /// A follower of this file, and the worker that was let start last.
    async fn follower(path: &Path, last_lift: Option<LastLift>) -> Follower {
        let limits = StallLimits { after: StallAfter::Never, first: None };
        let file = Some(path.to_owned());
        let config = ProgressConfig { file, pattern: None, malformed_pattern: None, limits, command: None };
        Follower::start(config, Arc::default(), last_lift).await
    }

    #[tokio::test]
    async fn steps_left_by_earlier_worker_are_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step");
        std::fs::write(&path, "step=500 checkpoint=450").unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        let written = (metadata.mtime(), metadata.mtime_nsec());
        let report = |follower: &mut Follower, epoch| {
            let report = ProgressReport::parse(&follower.before(epoch).unwrap()).unwrap();
            (report.epoch, report.step, report.checkpoint)
        };
        let mut unknown = follower(&path, None).await;
        assert_eq!(report(&mut unknown, 3), (2, Some(500), Some(450)));
        assert_eq!(report(&mut unknown, 4), (2, Some(500), Some(450)), "whatever epochs pass before the next worker");
        let mut of_last = follower(&path, Some(LastLift { epoch: 2, modified: written })).await;
        assert_eq!(report(&mut of_last, 4), (2, Some(500), Some(450)));
        let later = (written.0 + 1, written.1);
        let mut of_earlier = follower(&path, Some(LastLift { epoch: 2, modified: later })).await;
        assert_eq!(report(&mut of_earlier, 3), (2, None, None));
        assert_eq!(of_earlier.reader().unwrap()(), None, "it tells nothing of the next worker");
    }

    #[tokio::test]
    async fn late_reading_of_worker_before_is_not_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step");
        let mut follower = follower(&path, None).await;
        follower.begin(1, None);
        std::fs::write(&path, "100").unwrap();
        let late = read(&path, None, open);
        follower.end(None);
        follower.begin(2, None);
        assert_eq!(follower.on(FollowEvent::Read { epoch: 1, read: late.clone() }), None);
        assert_eq!(follower.reader().unwrap()(), None, "the same file tells nothing of the next worker");
        assert!(follower.on(FollowEvent::Read { epoch: 2, read: late }).is_some());
    }
}
