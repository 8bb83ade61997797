//! Where the agents are: the roll that they keep themselves, and the wait until all have lifted their barrier.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::sync::watch;

use jobset_harness::progress::progress;

/// How often a wait says where the agents are.
const SAY_PERIOD: Duration = Duration::from_secs(5);

/// How far an agent has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Has not seen the JobSet yet.
    Starts,
    /// Has not been answered its report of this epoch.
    Reports(i32),
    /// Waits at the barrier in this epoch.
    Waits(i32),
    /// Has lifted its barrier in this epoch.
    Lifted(i32),
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starts => f.write_str("start"),
            Self::Reports(epoch) => write!(f, "report epoch {epoch}"),
            Self::Waits(epoch) => write!(f, "wait at the barrier in epoch {epoch}"),
            Self::Lifted(epoch) => write!(f, "have lifted epoch {epoch}"),
        }
    }
}

/// When something happened first and last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: Option<Instant>,
    pub(super) last: Option<Instant>,
}

impl Span {
    fn note(&mut self, now: Instant) {
        self.first = Some(self.first.map_or(now, |first| first.min(now)));
        self.last = Some(self.last.map_or(now, |last| last.max(now)));
    }
}

/// The stage of each agent, and what happened on the way to one epoch. Pure.
#[derive(Clone, Debug)]
struct Record {
    stages: Vec<Stage>,
    /// The epoch that all are to reach.
    target: i32,
    lifted: usize,
    way: Way,
}

/// What happened on the way to an epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way {
    /// Agents began anew.
    pub(super) restarts: Span,
    /// Reports of the epoch were answered.
    pub(super) reports: Span,
    /// Barriers were lifted in the epoch.
    pub(super) lifts: Span,
    /// Reports of any epoch that were refused or got no answer.
    pub(super) failed_reports: usize,
}

impl Record {
    fn set_out(&mut self, target: i32) {
        self.target = target;
        self.way = Way::default();
        self.lifted = self.stages.iter().filter(|stage| **stage == Stage::Lifted(target)).count();
    }

    fn note(&mut self, agent: usize, stage: Stage, now: Instant) {
        let before = self.stages[agent];
        // The barrier may be lifted before the report that it waited for is answered.
        let is_late = matches!((before, stage), (Stage::Lifted(lifted), Stage::Waits(epoch)) if lifted == epoch);
        if before == stage || is_late {
            return;
        }
        self.stages[agent] = stage;
        let target = self.target;
        self.lifted -= usize::from(before == Stage::Lifted(target));
        match stage {
            Stage::Starts => self.way.restarts.note(now),
            Stage::Waits(epoch) if epoch == target => self.way.reports.note(now),
            Stage::Lifted(epoch) if epoch == target => {
                self.lifted += 1;
                self.way.lifts.note(now);
                if before == Stage::Reports(epoch) {
                    // Not answered yet, but that the barrier is lifted proves that the report has arrived.
                    self.way.reports.note(now);
                }
            }
            _ => {}
        }
    }

    fn is_complete(&self) -> bool {
        self.lifted == self.stages.len()
    }

    /// Says where the agents are: `of 5 agents 3 wait at the barrier in epoch 2, 2 have lifted epoch 1`.
    fn describe(&self) -> String {
        let mut counts: BTreeMap<Stage, usize> = BTreeMap::new();
        for stage in &self.stages {
            *counts.entry(*stage).or_default() += 1;
        }
        let parts: Vec<String> = counts.iter().map(|(stage, count)| format!("{count} {stage}")).collect();
        let failed = match self.way.failed_reports {
            0 => String::new(),
            count => format!("; {count} reports failed"),
        };
        format!("of {} agents {}{failed}", self.stages.len(), parts.join(", "))
    }
}

/// The roll, shared by all agents.
#[derive(Debug)]
pub(super) struct Roll(watch::Sender<Record>);

impl Roll {
    /// The roll of so many agents that have not started.
    pub(super) fn new(agents: usize) -> Self {
        let record = Record { stages: vec![Stage::Starts; agents], target: 0, lifted: 0, way: Way::default() };
        Self(watch::Sender::new(record))
    }

    /// All agents are to reach this epoch. What they do from now on belongs to the way there.
    pub(super) fn set_out(&self, target: i32) {
        self.0.send_modify(|record| record.set_out(target));
    }

    /// An agent has come this far.
    pub(super) fn note(&self, agent: usize, stage: Stage) {
        let now = Instant::now();
        self.0.send_if_modified(|record| {
            record.note(agent, stage, now);
            record.is_complete()
        });
    }

    /// An agent's report was refused, or got no answer.
    pub(super) fn note_failed_report(&self) {
        self.0.send_if_modified(|record| {
            record.way.failed_reports += 1;
            false
        });
    }

    /// Waits until every agent has lifted its barrier in the epoch that was set out for.
    ///
    /// # Errors
    /// At the limit; the text says how many agents are where.
    pub(super) async fn all_lifted(&self, limit: Duration) -> Result<Way> {
        let mut record = self.0.subscribe();
        let target = record.borrow().target;
        let complete = async {
            let way = record.wait_for(Record::is_complete).await.map(|record| record.way);
            way.context("nobody keeps the roll")
        };
        let say = async {
            loop {
                tokio::time::sleep(SAY_PERIOD).await;
                progress(&self.0.borrow().describe());
            }
        };
        tokio::select! {
            way = complete => way,
            never = say => never,
            () = tokio::time::sleep(limit) => bail!(
                "not all agents have lifted epoch {target} after {:.0} s: {}; agents.log beside the results has what \
                 they were refused",
                limit.as_secs_f64(),
                self.0.borrow().describe(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(agents: usize, epoch: i32) -> Record {
        let mut record =
            Record { stages: vec![Stage::Lifted(epoch); agents], target: epoch, lifted: agents, way: Way::default() };
        record.set_out(epoch + 1);
        record
    }

    #[test]
    fn way_to_an_epoch_ends_with_the_last_lift_and_keeps_firsts_and_lasts() {
        let (mut record, start) = (record(2, 1), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let steps = [
            (0, Stage::Starts, 1),
            (0, Stage::Reports(2), 2),
            (0, Stage::Waits(2), 3),
            (1, Stage::Starts, 4),
            (1, Stage::Reports(2), 5),
            (1, Stage::Waits(2), 6),
            (1, Stage::Lifted(2), 7),
            (0, Stage::Lifted(2), 8),
        ];
        for (agent, stage, when) in steps {
            assert!(!record.is_complete());
            record.note(agent, stage, at(when));
        }
        assert!(record.is_complete());
        let span = |first, last| Span { first: Some(at(first)), last: Some(at(last)) };
        let way = record.way;
        assert_eq!((way.restarts, way.reports, way.lifts), (span(1, 4), span(3, 6), span(7, 8)));
    }

    #[test]
    fn lift_before_the_answer_counts_as_the_answer_and_what_repeats_counts_once() {
        let (mut record, start) = (record(1, 1), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        for (stage, when) in [(Stage::Starts, 1), (Stage::Reports(2), 2), (Stage::Lifted(2), 3)] {
            record.note(0, stage, at(when));
        }
        record.note(0, Stage::Lifted(2), at(4));
        record.note(0, Stage::Waits(2), at(5));
        assert!(record.is_complete());
        assert_eq!((record.way.reports.last, record.way.lifts.last, record.lifted), (Some(at(3)), Some(at(3)), 1));
    }

    #[test]
    fn agent_that_restarts_again_is_waited_for() {
        let (mut record, now) = (record(1, 1), Instant::now());
        record.note(0, Stage::Lifted(2), now);
        assert!(record.is_complete());
        record.note(0, Stage::Starts, now);
        assert!(!record.is_complete());
    }

    #[test]
    fn description_says_how_many_agents_are_where() {
        let (mut record, now) = (record(5, 1), Instant::now());
        record.note(0, Stage::Starts, now);
        record.note(1, Stage::Waits(2), now);
        record.note(2, Stage::Waits(2), now);
        record.way.failed_reports = 7;
        assert_eq!(
            record.describe(),
            "of 5 agents 1 start, 2 wait at the barrier in epoch 2, 2 have lifted epoch 1; 7 reports failed"
        );
    }

    #[tokio::test]
    async fn wait_that_reaches_its_limit_says_where_the_agents_are() {
        let roll = Roll::new(2);
        roll.set_out(1);
        roll.note(0, Stage::Waits(1));
        let error = roll.all_lifted(Duration::from_millis(1)).await.unwrap_err().to_string();
        assert!(error.contains("epoch 1") && error.contains("of 2 agents 1 start, 1 wait at the barrier"), "{error}");
    }
}
