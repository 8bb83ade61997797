//! Watches a JobSet until the wait is over.

use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval, timeout_at};

use super::decision::{Goal, WaitBaseline, WaitDecision};
use super::report::{WaitOutcome, WaitReport, progress};
use crate::cluster::{Cluster, Feed, FeedScope};
use crate::error::Error;
use crate::mirror::{JobSetKey, Mirror, WatchEvent};
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
    let start = Instant::now();
    // A name that does not exist is an error at once.
    let uid = cluster.jobset(name).await?.metadata.uid;
    let mut wait = Wait {
        key: JobSetKey::new(&cluster.namespace, name),
        uid,
        goal,
        feed: Feed::begin(cluster, &FeedScope::Named(name.to_owned())),
        mirror: Mirror::default(),
        start,
    };
    let ended = match timeout {
        None => wait.end(line).await.map(Some),
        Some(limit) => match tokio::time::timeout(limit, wait.end(line)).await {
            Ok(ended) => ended.map(Some),
            Err(_) => Ok(None),
        },
    }?;
    let tree = wait.tree();
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
        seconds: start.elapsed().as_secs_f64(),
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

/// A wait for one JobSet.
struct Wait {
    key: JobSetKey,
    /// Of the JobSet that existed at first. Another one of the same name does not count.
    uid: Option<String>,
    goal: Goal,
    feed: Feed,
    mirror: Mirror,
    start: Instant,
}

impl Wait {
    /// The JobSet that existed at first, if it still exists.
    fn tree(&self) -> Option<JobSetTree> {
        let observed = self.mirror.jobset(&self.key).filter(|observed| observed.uid() == self.uid.as_deref());
        observed?.tree(None)
    }

    /// Waits until the wait is over.
    async fn end(&mut self, line: &mut ProgressLine) -> Result<WaitDecision, Error> {
        while !self.mirror.is_complete() {
            match self.feed.next().await {
                WatchEvent::Failed(_, error, _) => return Err(error),
                event => self.mirror.apply(event),
            }
        }
        let baseline = self.tree().as_ref().map(WaitBaseline::of).unwrap_or_default();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let tree = self.tree();
            match WaitDecision::of(self.goal, &baseline, tree.as_ref()) {
                WaitDecision::Wait => {}
                ended => return Ok(ended),
            }
            let text = tree.as_ref().map(progress).unwrap_or_default();
            // Without a change, the line still tells the time, and which watches do not work.
            loop {
                tokio::select! {
                    event = self.feed.next() => {
                        self.mirror.apply(event);
                        break;
                    }
                    now = tick.tick() => {
                        let problems: Vec<&str> = self.mirror.problems(now).collect();
                        line.show(&[&[text.as_str()][..], &problems[..]].concat().join("; "), self.start.elapsed());
                    }
                }
            }
            let until = tokio::time::Instant::now() + TOGETHER;
            while let Ok(event) = timeout_at(until, self.feed.next()).await {
                self.mirror.apply(event);
            }
        }
    }
}
