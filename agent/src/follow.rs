//! Follows the progress of the worker: reads its file and its output once a second, tells [`ProgressState`], and carries out what
//! follows. An agent without a file and without a pattern does nothing here.
//!
//! The file may be on a disk that hangs, so that another thread reads it. The agent itself never waits for it.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::args::ProgressConfig;
use crate::evidence::{Evidence, FirstLook, gather, in_time, look_again};
use crate::group::GroupFacts;
use crate::progress::{MatchedSteps, ProgressLine, ProgressOutput, ProgressState, StallReport, StepReader, text};
use crate::stall_command;
use crate::transport::until;

/// Most bytes of the file that are read: those at its end.
const MOST_BYTES: u64 = 512;
/// How long an agent waits for the file of a worker that has ended, or of an earlier one.
const LAST_READ_TIMEOUT: Duration = Duration::from_secs(1);

/// What tells one state of the file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

/// A state of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    stamp: Stamp,
    line: ProgressLine,
    /// How long ago the file was written.
    ago: Duration,
}

/// What the follower waits for.
#[derive(Debug)]
pub enum FollowEvent {
    /// It is time to read.
    Due,
    /// The file was read for the worker of this epoch; `None` if it is as it was, or cannot be read.
    Read { epoch: i32, read: Option<FileState> },
    /// The worker of this epoch, which makes no progress, was looked at.
    Looked { epoch: i32, evidence: Evidence },
}

/// What is to be reported.
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
    /// A follower of workers that have not started. Reads what an earlier worker of the Pod has told.
    pub async fn start(config: ProgressConfig, group: Arc<GroupFacts>) -> Self {
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
            follower.state.left(&left.line);
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
        let facts = self.state.facts()?;
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
    fn note(&mut self, read: Option<FileState>) -> Option<(ProgressLine, Duration)> {
        let FileState { stamp, line, ago } = read?;
        self.known = Some((stamp, line.clone()));
        Some((line, ago))
    }

    /// Takes what the file tells, or what was read of the output.
    fn take(&mut self, told: Option<(ProgressLine, Duration)>) -> Option<ProgressUpdate> {
        if !self.state.has_worker() {
            return None;
        }
        let told = told.or_else(|| Some((self.steps.take()?, Duration::ZERO)));
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
        Some(move || read(&path, known.as_ref()))
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

/// Reads the file. `None` if it is as it was, or cannot be read. Two writes may have one stamp, so the line counts as well.
fn read(path: &Path, known: Option<&(Stamp, ProgressLine)>) -> Option<FileState> {
    // A pipe or a device of that name would block the thread for ever.
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let stamp =
        Stamp { inode: metadata.ino(), length: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) };
    let mut bytes = Vec::new();
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(stamp.length.saturating_sub(MOST_BYTES))).ok()?;
    // What cannot be read has been written nevertheless.
    let _ = file.take(MOST_BYTES).read_to_end(&mut bytes);
    let line = ProgressLine::parse(&String::from_utf8_lossy(&bytes));
    if known.is_some_and(|(before, read)| *before == stamp && *read == line) {
        return None;
    }
    let ago = metadata.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
    Some(FileState { stamp, line, ago })
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn line_written_within_one_tick_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step");
        let write = |line: &str, modified: Option<std::time::SystemTime>| {
            std::fs::write(&path, line).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(modified.unwrap_or_else(std::time::SystemTime::now)).unwrap();
            std::fs::metadata(&path).unwrap().modified().unwrap()
        };
        let modified = write("7", None);
        let first = read(&path, None).unwrap();
        let known = (first.stamp, first.line);
        assert_eq!(read(&path, Some(&known)), None);
        write("8", Some(modified));
        let second = read(&path, Some(&known)).unwrap();
        assert_eq!((second.stamp, second.line.step), (known.0, Some(8)));
    }

    #[tokio::test]
    async fn late_reading_of_worker_before_is_not_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step");
        let limits = StallLimits { after: StallAfter::Never, first: Duration::from_secs(5) };
        let config = ProgressConfig { file: Some(path.clone()), pattern: None, limits, command: None };
        let mut follower = Follower::start(config, Arc::default()).await;
        follower.begin(1, None);
        std::fs::write(&path, "100").unwrap();
        let late = read(&path, None);
        follower.end(None);
        follower.begin(2, None);
        assert_eq!(follower.on(FollowEvent::Read { epoch: 1, read: late.clone() }), None);
        assert_eq!(follower.reader().unwrap()(), None, "the same file tells nothing of the next worker");
        assert!(follower.on(FollowEvent::Read { epoch: 2, read: late }).is_some());
    }
}
