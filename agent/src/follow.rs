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

use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::args::ProgressConfig;
use crate::evidence::{Evidence, FirstLook, look_again};
use crate::group_pause::GroupPause;
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
    /// The file was read; `None` if it is as it was, or cannot be read.
    Read(Option<FileState>),
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
    group_pause: Arc<GroupPause>,
    started: Instant,
    stamp: Option<Stamp>,
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
    pub async fn start(config: ProgressConfig, group_pause: Arc<GroupPause>) -> Self {
        let mut follower = Self {
            state: ProgressState::new(config.limits),
            config,
            steps: MatchedSteps::default(),
            group_pause,
            started: Instant::now(),
            stamp: None,
            due: None,
            is_reading: false,
            look: None,
            stall: None,
            worker: None,
            epoch: 0,
            events: mpsc::channel(2),
        };
        if let Some(left) = read_in_time(follower.reader()).await {
            follower.stamp = Some(left.stamp);
            follower.state.left(&left.line);
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
        self.take(last);
        self.state.end();
        (self.due, self.look, self.stall) = (None, None, None);
    }

    /// What a report of this epoch says of the worker before. `None` if no worker has ever told of progress.
    pub fn before(&self, epoch: i32) -> Option<String> {
        let facts = self.state.facts()?;
        Some(text(&facts, facts.epoch.unwrap_or(epoch - 1), None, Timestamp::now()))
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
                        let events = self.events.0.clone();
                        tokio::task::spawn_blocking(move || events.blocking_send(FollowEvent::Read(reader())).is_ok());
                        None
                    }
                    // The disk of the file hangs, or there is no file.
                    None => self.take(None),
                }
            }
            FollowEvent::Read(read) => {
                self.is_reading = false;
                let update = self.take(read);
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

    /// Takes what was read of the file and of the output.
    fn take(&mut self, read: Option<FileState>) -> Option<ProgressUpdate> {
        if !self.state.has_worker() {
            return None;
        }
        let told = read.map(|read| {
            self.stamp = Some(read.stamp);
            (read.line, read.ago)
        });
        let told = told.or_else(|| Some((self.steps.take()?, Duration::ZERO)));
        self.state.survived_by_group(self.group_pause.get());
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
                tokio::task::spawn_blocking(move || {
                    let processes = look_again(look.as_ref());
                    let output = command.map(|command| stall_command::run(&command, Some(worker), epoch));
                    let evidence = Evidence { processes, output: output.unwrap_or_default() };
                    evidence.log();
                    events.blocking_send(FollowEvent::Looked { epoch, evidence }).is_ok()
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

    fn update(&self, is_urgent: bool) -> Option<ProgressUpdate> {
        let text = text(&self.state.facts()?, self.epoch, self.stall.as_ref(), Timestamp::now());
        Some(ProgressUpdate { text, is_urgent })
    }

    fn reader(&self) -> Option<impl FnOnce() -> Option<FileState> + Send + use<>> {
        let (path, known) = (self.config.file.clone()?, self.stamp);
        Some(move || read(&path, known))
    }
}

/// Carries out a reading on another thread. `None` if there is none, or the disk hangs.
async fn read_in_time(reader: Option<impl FnOnce() -> Option<FileState> + Send + 'static>) -> Option<FileState> {
    let reading = tokio::task::spawn_blocking(reader?);
    timeout(LAST_READ_TIMEOUT, reading).await.ok()?.ok()?
}

/// Reads the file, unless it is as it was.
fn read(path: &Path, known: Option<Stamp>) -> Option<FileState> {
    // A pipe or a device of that name would block the thread for ever.
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let stamp =
        Stamp { inode: metadata.ino(), length: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) };
    if known == Some(stamp) {
        return None;
    }
    let mut bytes = Vec::new();
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(stamp.length.saturating_sub(MOST_BYTES))).ok()?;
    // What cannot be read has been written nevertheless.
    let _ = file.take(MOST_BYTES).read_to_end(&mut bytes);
    let ago = metadata.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
    Some(FileState { stamp, ago, line: ProgressLine::parse(&String::from_utf8_lossy(&bytes)) })
}
