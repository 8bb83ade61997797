//! Shows the logs: one after the other, or, followed, as the lines come.

use std::collections::HashSet;
use std::io::IsTerminal as _;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::stream::{self, FuturesUnordered, StreamExt as _};
use jobset_api::{JobSet, JobSetStatus};
use jobset_objects::PartialPod;
use kube::api::LogParams;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::followed::{FollowedLog, LogOutput, shown};
use super::reader::LogReader;
use super::source::{LogChoice, LogSource, LogSources, sources};
use crate::args::LogsArgs;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{ProgressLine, Screen};

/// Logs that are opened before their turn.
const AHEAD: usize = 16;
/// How often Pods that are followed are looked for.
const LOOK: Duration = Duration::from_secs(5);
/// Lines of all logs that are followed that wait to be written.
const WAITING: usize = 256;

pub async fn show(cluster: &Cluster, args: &LogsArgs, screen: &Screen, line: &mut ProgressLine) -> Result<Exit, Error> {
    let logs = Logs { cluster, args, screen };
    let LogSources { sources, missing } = logs.sources(&cluster.jobset(&args.name).await?).await?;
    for text in &missing {
        line.note(text);
    }
    if args.follow {
        if sources.len() > args.max_log_requests {
            return Err(Error::Usage(format!(
                "{} Pods are to be followed, and at most {}: choose some with --selector, --failed or --epoch, or raise --max-log-requests",
                sources.len(),
                args.max_log_requests
            )));
        }
        return logs.follow(sources, line).await;
    }
    if sources.is_empty() {
        line.note(if args.failed {
            "no worker has failed, as far as Pods and the last restarts tell"
        } else {
            "there are no logs"
        });
        return Ok(Exit::No);
    }
    logs.print(sources, line).await
}

struct Logs<'a> {
    cluster: &'a Cluster,
    args: &'a LogsArgs,
    screen: &'a Screen,
}

/// What has become of a log that was to be printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Printed {
    /// Lines of it that were shown.
    lines: usize,
    /// Whether its connection has broken before its end, or could not be opened.
    broke: bool,
}

enum Look {
    /// Its logs, and whether it has finished.
    Found(LogSources, bool),
    /// It does not exist any more.
    Gone,
    /// The API server has not answered as it should.
    Failed(Error),
}

impl Logs<'_> {
    async fn sources(&self, jobset: &JobSet) -> Result<LogSources, Error> {
        let LogsArgs { name, epoch, failed, previous, container, selector, .. } = self.args;
        let pods = self.cluster.pods_where(name, selector.as_deref()).await?;
        let pods: Vec<&PartialPod> = pods.iter().map(AsRef::as_ref).collect();
        let choice = LogChoice { epoch: *epoch, failed: *failed, previous: *previous, container: container.clone() };
        sources(jobset, &pods, &choice)
            .map_err(|why| Error::Usage(format!("JobSet {}/{name} {why}", self.cluster.namespace)))
    }

    fn tail(&self) -> Option<i64> {
        Some(self.args.tail).filter(|lines| *lines >= 0)
    }

    /// One log after the other, in the order of the Pods.
    async fn print(&self, sources: Vec<LogSource>, line: &mut ProgressLine) -> Result<Exit, Error> {
        let (all, start) = (sources.len(), Instant::now());
        // On one terminal, the progress would stand between the lines.
        let shows_progress = !std::io::stdout().is_terminal();
        let opened = stream::iter(sources).map(|source| async {
            let LogSource { pod, container, previous, .. } = &source;
            let (container, (_, tail_lines)) = (Some(container.clone()), shown(&source, self.tail()));
            let params = LogParams { container, previous: *previous, tail_lines, ..LogParams::default() };
            let reader = LogReader::open(self.cluster, pod, &params).await;
            (source, reader)
        });
        let mut opened = opened.buffered(AHEAD);
        let (mut done, mut total, mut are_open) = (0, Printed::default(), false);
        while let Some((source, reader)) = opened.next().await {
            match reader {
                Ok(reader) => {
                    are_open = true;
                    let printed = self.print_one(&source, reader, line).await?;
                    total = Printed { lines: total.lines + printed.lines, broke: total.broke || printed.broke };
                }
                Err(error) => {
                    total.broke |= !error.is_missing();
                    line.note(&format!("Pod {}: {error}", source.pod));
                }
            }
            done += 1;
            if shows_progress {
                line.show(&format!("{done} of {all} logs"), start.elapsed());
            }
        }
        line.end("");
        if total == Printed::default() && self.args.tail != 0 && are_open {
            line.note(&self.why_empty());
        }
        Ok(match total {
            Printed { broke: true, .. } => Exit::Cluster,
            Printed { lines: 0, .. } if self.args.tail != 0 || !are_open => Exit::No,
            Printed { .. } => Exit::Ok,
        })
    }

    /// Prints a log to its end, or to where its connection breaks.
    async fn print_one(
        &self,
        source: &LogSource,
        mut reader: LogReader,
        line: &mut ProgressLine,
    ) -> Result<Printed, Error> {
        let (mut lines, _) = shown(source, self.tail());
        let mut printed = Printed::default();
        loop {
            let (texts, is_end) = match reader.next().await {
                Ok(Some(line)) => (lines.next(line.bytes), false),
                Ok(None) => (lines.end(), true),
                Err(error) => {
                    printed.broke = true;
                    let text = "its log breaks off here, because the connection does";
                    line.note(&format!("Pod {}: {text}: {error}", source.pod));
                    (lines.end(), true)
                }
            };
            for text in texts {
                printed.lines += 1;
                self.screen.write(&text)?;
            }
            if is_end {
                return Ok(printed);
            }
        }
    }

    /// Why logs that there are have no line to show.
    fn why_empty(&self) -> String {
        match self.args.epoch {
            Some(epoch) => format!("no line of epoch {epoch} is left: of each log, the kubelet keeps the newest part"),
            None if self.args.previous => "no line of the epoch before is left, or there was none".to_owned(),
            None => "the logs are empty".to_owned(),
        }
    }

    /// All lines as they come, also of containers and Pods that start later. Ends when the JobSet has finished or is gone, and its logs
    /// with it. No Pod waits for another one, whose node may not answer.
    async fn follow(&self, sources: Vec<LogSource>, line: &mut ProgressLine) -> Result<Exit, Error> {
        let (sender, mut output) = mpsc::channel(WAITING);
        let mut known: HashSet<String> = HashSet::new();
        let mut followed = FuturesUnordered::new();
        let mut looks = pin!(stream::unfold((), async |()| {
            sleep(LOOK).await;
            Some((self.look().await, ()))
        }));
        let (mut next, mut is_over, mut said) = (sources, false, None);
        loop {
            for source in next.drain(..) {
                if followed.len() < self.args.max_log_requests && known.insert(source.pod.clone()) {
                    let log = FollowedLog::new(self.cluster, &self.args.name, source, self.tail(), sender.clone());
                    followed.push(log.run());
                }
            }
            if is_over && followed.is_empty() {
                while let Ok(shown) = output.try_recv() {
                    self.show(shown, line)?;
                }
                return Ok(Exit::Ok);
            }
            tokio::select! {
                Some(shown) = output.recv() => self.show(shown, line)?,
                Some(()) = followed.next(), if !followed.is_empty() => {}
                Some(look) = looks.next() => match look {
                    Look::Found(found, has_finished) => (next, is_over, said) = (found.sources, has_finished, None),
                    Look::Gone => is_over = true,
                    Look::Failed(error) => {
                        let text = format!("{error}; trying again");
                        if said.as_ref() != Some(&text) {
                            line.note(&text);
                        }
                        said = Some(text);
                    }
                },
            }
        }
    }

    /// Looks for Pods that have come since, and whether the JobSet has finished.
    async fn look(&self) -> Look {
        let jobset = match self.cluster.jobset(&self.args.name).await {
            Ok(jobset) => jobset,
            Err(Error::NotFound { .. }) => return Look::Gone,
            Err(error) => return Look::Failed(error),
        };
        let has_finished = jobset.status.as_ref().is_some_and(JobSetStatus::is_finished);
        match self.sources(&jobset).await {
            Ok(found) => Look::Found(found, has_finished),
            Err(error) => Look::Failed(error),
        }
    }

    fn show(&self, output: LogOutput, line: &mut ProgressLine) -> Result<(), Error> {
        match output {
            LogOutput::Line(text) => self.screen.write(&text),
            LogOutput::Note(text) => {
                line.note(&text);
                Ok(())
            }
        }
    }
}
