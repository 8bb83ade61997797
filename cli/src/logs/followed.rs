//! Follows the log of one Pod: from run to run of its container, and over connections that break.

use std::time::Duration;

use jobset_objects::PartialPod;
use kube::api::LogParams;
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use super::container_run::{ContainerRun, LogStep};
use super::cursor::LogCursor;
use super::lines::ShownLines;
use super::reader::LogReader;
use super::source::{LogSource, epoch_of_run};
use crate::cluster::Cluster;

/// A Pod whose log has ended is looked at after this time, and then less and less often.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest time between two looks.
const LONGEST: Duration = Duration::from_secs(5);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LogOutput {
    Line(Vec<u8>),
    /// Why there are no lines.
    Note(String),
}

pub(super) struct FollowedLog<'a> {
    cluster: &'a Cluster,
    jobset: &'a str,
    source: LogSource,
    lines: ShownLines,
    cursor: LogCursor,
    /// The last lines to show, until they were.
    tail: Option<i64>,
    /// The run that was read to its end.
    read: Option<ContainerRun>,
    /// What was said last.
    said: Option<String>,
    output: Sender<LogOutput>,
}

/// Nobody reads what there is to show.
struct Closed;

impl<'a> FollowedLog<'a> {
    pub(super) fn new(
        cluster: &'a Cluster,
        jobset: &'a str,
        source: LogSource,
        tail: Option<i64>,
        output: Sender<LogOutput>,
    ) -> Self {
        let (lines, tail) = shown(&source, tail);
        Self { cluster, jobset, source, lines, cursor: LogCursor::default(), tail, read: None, said: None, output }
    }

    /// Follows it until its Pod has ended or is gone.
    pub(super) async fn run(mut self) {
        let mut next = self.source.run.clone();
        let mut pause = AGAIN;
        loop {
            if let Some(run) = next {
                match self.read(run).await {
                    Ok(true) => pause = AGAIN,
                    Ok(false) => {}
                    Err(Closed) => return,
                }
                if self.source.previous {
                    return;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
            // Without an answer, it is asked again.
            let Ok(pod) = self.cluster.pod(&self.source.pod).await else {
                next = None;
                continue;
            };
            next = match LogStep::next(self.read.as_ref(), pod.as_ref(), &self.source.container) {
                LogStep::Open(run) => Some(run),
                LogStep::Wait => None,
                LogStep::Over => return,
            };
            if let (Some(run), Some(pod)) = (&next, &pod) {
                self.turn_to(run, pod).await;
            }
        }
    }

    /// Of another run than the one before, all lines are new, and of another epoch.
    async fn turn_to(&mut self, run: &ContainerRun, pod: &PartialPod) {
        let known = self.source.run.replace(run.clone());
        if known.is_some_and(|known| known.id == run.id) {
            return;
        }
        let jobset = self.cluster.jobset(self.jobset).await.ok();
        let later = self.source.epoch.and_then(|epoch| epoch.checked_add(1));
        self.source.epoch = jobset.map_or(later, |it| epoch_of_run(&it, pod, &self.source.container));
        (self.lines, self.tail) = shown(&self.source, None);
    }

    /// Reads a run from where it was shown to its end. Returns whether there were lines.
    async fn read(&mut self, run: ContainerRun) -> Result<bool, Closed> {
        let mut any = false;
        // What there is is read to its end first, where that says which lines are to be shown.
        while self.lines.waits_for_end() {
            if !self.copy(false, &mut any).await? {
                return Ok(any);
            }
            let lines = self.lines.end();
            self.send(lines).await?;
        }
        if self.copy(true, &mut any).await? {
            self.read = Some(run);
        }
        Ok(any)
    }

    /// Shows the lines of one answer. Returns whether it has ended as it should.
    async fn copy(&mut self, follow: bool, any: &mut bool) -> Result<bool, Closed> {
        let LogSource { pod, container, previous, .. } = &self.source;
        let params = LogParams {
            container: Some(container.clone()),
            previous: *previous,
            follow: follow && !previous,
            tail_lines: self.tail,
            timestamps: true,
            since_time: self.cursor.since(),
            ..LogParams::default()
        };
        let mut reader = match LogReader::open(self.cluster, pod, &params).await {
            Ok(reader) => reader,
            Err(error) => {
                let text = format!("Pod {pod}: {error}; trying again");
                self.say(text).await?;
                return Ok(false);
            }
        };
        self.tail = None;
        self.cursor.reopen();
        let mut is_new = true;
        loop {
            let line = match reader.next().await {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(true),
                Err(_) => return Ok(false),
            };
            let text = if line.begins { self.cursor.take(&line.bytes) } else { Some(line.bytes).filter(|_| is_new) };
            is_new = text.is_some();
            if let Some(text) = text {
                (*any, self.said) = (true, None);
                let lines = self.lines.next(text);
                self.send(lines).await?;
            }
        }
    }

    async fn send(&self, lines: Vec<Vec<u8>>) -> Result<(), Closed> {
        for line in lines {
            self.output.send(LogOutput::Line(line)).await.map_err(|_| Closed)?;
        }
        Ok(())
    }

    async fn say(&mut self, text: String) -> Result<(), Closed> {
        if self.said.as_ref() == Some(&text) {
            return Ok(());
        }
        self.said = Some(text.clone());
        self.output.send(LogOutput::Note(text)).await.map_err(|_| Closed)
    }
}

/// The lines to show of a log, and the last ones of it that the kubelet is asked for. Of a log that is divided, it does not know which
/// these are.
pub(super) fn shown(source: &LogSource, tail: Option<i64>) -> (ShownLines, Option<i64>) {
    let last = tail.filter(|_| source.is_divided).and_then(|lines| usize::try_from(lines).ok());
    (ShownLines::new(source, last), tail.filter(|_| !source.is_divided))
}
