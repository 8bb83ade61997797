//! Reads the log of one container, line by line.

use std::pin::Pin;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use tokio::time::sleep;

use super::epochs::EpochOfLine;
use super::source::{LogSource, reported, status_of};
use crate::cluster::{Cluster, LogRequest};
use crate::error::Error;

/// Longest line, in bytes. A longer one is shown as several.
const LONGEST: usize = 64 << 10;
/// How often a Pod is looked at whose log has ended, while it is followed.
const AGAIN: Duration = Duration::from_secs(1);

type Body = Pin<Box<dyn AsyncBufRead + Send>>;

/// A log that is read.
pub(super) struct LogReader {
    pub(super) source: LogSource,
    body: Body,
    epochs: EpochOfLine,
    follow: bool,
}

impl LogReader {
    pub(super) async fn open(
        cluster: &Cluster,
        source: LogSource,
        follow: bool,
        tail: Option<i64>,
    ) -> Result<Self, Error> {
        let LogSource { pod, container, previous, .. } = &source;
        // The last lines of a log that is divided may lack the line that says in which epoch they were written.
        let tail = tail.filter(|_| !source.is_divided);
        let body = cluster.log(&LogRequest { pod, container, previous: *previous, follow, tail }).await?;
        let epochs = EpochOfLine::new(source.is_divided, source.epoch);
        Ok(Self { source, body: Box::pin(body), epochs, follow })
    }

    /// The next line to show, with its prefix and its end. `None` at the end of the log; an error that breaks it off is its end, too.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let line = self.line().await?;
            let epoch = self.epochs.next(&line);
            if self.source.only.is_some() && epoch != self.source.only {
                continue;
            }
            let pod = &self.source.pod;
            let mut shown = match epoch {
                Some(epoch) => format!("[{pod} epoch {epoch}] "),
                None => format!("[{pod}] "),
            }
            .into_bytes();
            shown.extend(line);
            shown.push(b'\n');
            return Some(shown);
        }
    }

    /// The next line without its end.
    async fn line(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            let part = self.body.fill_buf().await.ok()?;
            if part.is_empty() {
                return (!line.is_empty()).then_some(line);
            }
            let room = part.len().min(LONGEST - line.len());
            let end = part[..room].iter().position(|byte| *byte == b'\n');
            line.extend(&part[..end.unwrap_or(room)]);
            let read = end.map_or(room, |end| end + 1);
            self.body.as_mut().consume(read);
            if end.is_some() || line.len() == LONGEST {
                return Some(line);
            }
        }
    }

    /// Reads on where the log of a followed Pod has ended: in its next container. `None` when the Pod has ended.
    pub(super) async fn reopened(self, cluster: &Cluster) -> Option<Self> {
        if !self.follow || self.source.previous {
            return None;
        }
        let mut known = self.source;
        loop {
            sleep(AGAIN).await;
            match cluster.pod(&known.pod).await {
                Ok(None) => return None,
                Ok(Some(pod)) if pod.has_ended() => return None,
                Ok(Some(pod)) => {
                    let now = status_of(&pod, &known.container);
                    let Some(now) = now.filter(|now| now.state.running.is_some() && now.container_id != known.run)
                    else {
                        continue;
                    };
                    known.run.clone_from(&now.container_id);
                    if !known.is_divided {
                        // An annotation of the agent stream follows later.
                        known.epoch = reported(&pod).max(known.epoch.map(|epoch| epoch.saturating_add(1)));
                    }
                    if let Ok(reader) = Self::open(cluster, known.clone(), true, None).await {
                        return Some(reader);
                    }
                }
                Err(_) => {}
            }
        }
    }
}
