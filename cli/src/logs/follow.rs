//! Shows the logs: one after the other, or, followed, as the lines come.

use std::collections::HashSet;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use futures::stream::{self, BoxStream, SelectAll, StreamExt as _};
use jobset_api::{JobSet, JobSetStatus};
use jobset_objects::PartialPod;
use tokio::time::{MissedTickBehavior, interval};

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

/// Shows the logs that the user asks for.
///
/// # Errors
/// If the JobSet does not exist, its Pods cannot be listed, or too many are to be followed.
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

/// The logs of one JobSet.
struct Logs<'a> {
    cluster: &'a Cluster,
    args: &'a LogsArgs,
    screen: &'a Screen,
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
            let pod = source.pod.clone();
            (pod, LogReader::open(self.cluster, source, false, self.tail()).await)
        });
        let mut opened = opened.buffered(AHEAD);
        let (mut done, mut shown) = (0, 0);
        while let Some((pod, reader)) = opened.next().await {
            match reader {
                Ok(mut reader) => {
                    shown += 1;
                    while let Some(text) = reader.next().await {
                        self.screen.write(&text)?;
                    }
                }
                Err(error) => line.note(&format!("Pod {pod}: {error}")),
            }
            done += 1;
            if shows_progress {
                line.show(&format!("{done} of {all} logs"), start.elapsed());
            }
        }
        line.end("");
        Ok(if shown > 0 { Exit::Ok } else { Exit::No })
    }

    /// All lines as they come, also of containers and Pods that start later. Ends when the JobSet has finished, and its logs with it.
    async fn follow(&self, sources: Vec<LogSource>, line: &mut ProgressLine) -> Result<Exit, Error> {
        let mut known: HashSet<String> = HashSet::new();
        let mut streams: SelectAll<BoxStream<'_, Vec<u8>>> = SelectAll::new();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look.tick().await;
        let mut next = sources;
        let mut is_over = false;
        loop {
            for source in next.drain(..) {
                if known.len() < self.args.max_log_requests && known.insert(source.pod.clone()) {
                    match LogReader::open(self.cluster, source.clone(), true, self.tail()).await {
                        Ok(reader) => streams.push(self.lines(reader).boxed()),
                        // It has not started: it is looked for again.
                        Err(_) => drop(known.remove(&source.pod)),
                    }
                }
            }
            if is_over && streams.is_empty() {
                return Ok(Exit::Ok);
            }
            tokio::select! {
                biased;
                Some(text) = streams.next(), if !streams.is_empty() => self.screen.write(&text)?,
                _ = look.tick() => {
                    let jobset = self.cluster.jobset(&self.args.name).await?;
                    is_over = jobset.status.as_ref().is_some_and(JobSetStatus::is_finished);
                    match self.sources(&jobset).await {
                        Ok(found) => next = found.sources,
                        Err(error) => line.note(&error.to_string()),
                    }
                }
            }
        }
    }

    fn lines(&self, reader: LogReader) -> impl futures::Stream<Item = Vec<u8>> + Send + '_ {
        stream::unfold(reader, async move |mut reader| {
            loop {
                if let Some(text) = reader.next().await {
                    return Some((text, reader));
                }
                reader = reader.reopened(self.cluster).await?;
            }
        })
    }
}
