//! Watches a JobSet until the wait is over.

use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval, timeout_at};

use super::decision::{Goal, WaitDecision};
use super::report::{WaitOutcome, WaitReport, progress};
use super::watched::Watched;
use crate::cluster::{Cluster, Feed, FeedScope};
use crate::error::Error;
use crate::mirror::{JobSetKey, WatchEvent};
use crate::output::ProgressLine;
use crate::status::JobSetTree;

/// Events within this time are decided on together.
const TOGETHER: Duration = Duration::from_millis(100);
/// The line of progress is written this often, at most.
const TICK: Duration = Duration::from_secs(1);

/// Waits for a JobSet that exists, at most for `timeout`.
///
/// # Errors
/// If the JobSet does not exist at first, or the cluster cannot be watched from the beginning. A watch that fails later is
/// retried.
pub async fn follow(
    cluster: &Cluster,
    name: &str,
    goal: Goal,
    timeout: Option<Duration>,
    line: &mut ProgressLine,
) -> Result<WaitReport, Error> {
    let mut wait = Wait { cluster, name, goal, start: Instant::now(), watched: None };
    let ended = match timeout {
        None => wait.end(line).await.map(Some),
        Some(limit) => match tokio::time::timeout(limit, wait.end(line)).await {
            Ok(ended) => ended.map(Some),
            Err(_) => Ok(None),
        },
    }?;
    let tree = wait.watched.as_ref().and_then(Watched::tree);
    let (outcome, message) = match ended {
        Some(WaitDecision::Reached(message)) => (WaitOutcome::Reached, message),
        Some(WaitDecision::Unreachable(message)) => (WaitOutcome::Unreachable, message),
        Some(WaitDecision::Wait) | None => (WaitOutcome::TimedOut, timed_out(goal, tree.as_ref())),
    };
    Ok(WaitReport {
        name: name.to_owned(),
        namespace: cluster.namespace.clone(),
        goal,
        outcome,
        message,
        seconds: wait.start.elapsed().as_secs_f64(),
        state: tree.as_ref().map(|tree| tree.state),
        workers: tree.as_ref().and_then(|tree| tree.workers),
        barrier: tree.as_ref().and_then(|tree| tree.barrier.clone()),
        group_restarts: tree.as_ref().map(|tree| tree.restarts.total),
    })
}

fn timed_out(goal: Goal, tree: Option<&JobSetTree>) -> String {
    let goal = match goal {
        Goal::Running => "does not run",
        Goal::Restarted => "has not restarted",
        Goal::Finished => "has not finished",
    };
    let now = tree.map(|tree| format!(": it is {:?}", tree.state)).unwrap_or_default();
    format!("{goal} in time{now}")
}

struct Wait<'a> {
    cluster: &'a Cluster,
    name: &'a str,
    goal: Goal,
    start: Instant,
    /// None until the JobSet has been read.
    watched: Option<Watched>,
}

impl Wait<'_> {
    /// Reads the JobSet: a name that does not exist is an error at once.
    async fn begin(&mut self) -> Result<Watched, Error> {
        let jobset = self.cluster.jobset(self.name).await?;
        Ok(Watched::new(JobSetKey::new(&self.cluster.namespace, self.name), &jobset))
    }

    /// Waits until the wait is over.
    async fn end(&mut self, line: &mut ProgressLine) -> Result<WaitDecision, Error> {
        let begun = self.begin().await?;
        let watched = self.watched.insert(begun);
        let mut feed = Feed::begin(self.cluster, &FeedScope::Named(self.name.to_owned()));
        while !watched.is_known() {
            match feed.next().await {
                WatchEvent::Failed(_, error, _) => return Err(error),
                event => watched.take(event),
            }
        }
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let tree = watched.tree();
            match WaitDecision::of(self.goal, &watched.baseline, tree.as_ref()) {
                WaitDecision::Wait => {}
                ended => return Ok(ended),
            }
            let text = tree.as_ref().map(progress).unwrap_or_default();
            // Without a change, the line still tells the time, and which watches do not work.
            loop {
                tokio::select! {
                    event = feed.next() => {
                        watched.take(event);
                        break;
                    }
                    now = tick.tick() => {
                        let problems: Vec<&str> = watched.mirror.problems(now).collect();
                        line.show(&[&[text.as_str()][..], &problems[..]].concat().join("; "), self.start.elapsed());
                    }
                }
            }
            let until = tokio::time::Instant::now() + TOGETHER;
            while let Ok(event) = timeout_at(until, feed.next()).await {
                watched.take(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::args::ColorMode;

    #[tokio::test]
    async fn time_limit_holds_while_api_server_does_not_answer() {
        // The system accepts connections for a listener, which reads none of their requests.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let cluster = Cluster::at(silent.local_addr().unwrap(), "ml");
        let mut line = ProgressLine::new(ColorMode::Never);
        let waiting = follow(&cluster, "train", Goal::Running, Some(Duration::from_millis(100)), &mut line);
        let report =
            tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("the wait ends in time").unwrap();
        assert_eq!((report.outcome, report.state), (WaitOutcome::TimedOut, None));
        assert_eq!(report.message, "does not run in time");
    }
}
