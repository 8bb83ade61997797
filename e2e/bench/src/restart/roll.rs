//! Which epoch each agent has reached, and the wait until all have lifted their barrier.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::watch;

use crate::observe::reached;

/// How far an agent has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AgentStage {
    /// Has not received the JobSet yet.
    Starts,
    /// Has no answer to its report of this epoch yet.
    Reports(i32),
    Waits(i32),
    Lifted(i32),
}

impl fmt::Display for AgentStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starts => f.write_str("start"),
            Self::Reports(epoch) => write!(f, "report epoch {epoch}"),
            Self::Waits(epoch) => write!(f, "wait at the barrier in epoch {epoch}"),
            Self::Lifted(epoch) => write!(f, "have lifted epoch {epoch}"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WayToEpoch {
    /// The last restart of an agent.
    pub(super) restarted: Option<Instant>,
    /// The first and the last answer to a report of the epoch.
    pub(super) first_report: Option<Instant>,
    pub(super) reported: Option<Instant>,
    /// The last lift of a barrier in the epoch.
    pub(super) lifted: Option<Instant>,
    pub(super) failed_reports: usize,
}

/// The stage of each agent, and the way to the target. Pure.
#[derive(Clone, Debug)]
struct RollRecord {
    stages: Vec<AgentStage>,
    /// The epoch that all agents must reach.
    target: i32,
    /// How many have lifted it. A count, because the wait checks it after each note.
    lifted: usize,
    way: WayToEpoch,
}

impl RollRecord {
    fn new(stages: Vec<AgentStage>) -> Self {
        Self { stages, target: 0, lifted: 0, way: WayToEpoch::default() }
    }

    fn set_out(&mut self, target: i32) {
        self.target = target;
        self.lifted = self.stages.iter().filter(|stage| **stage == AgentStage::Lifted(target)).count();
        self.way = WayToEpoch::default();
    }

    fn note(&mut self, agent: usize, stage: AgentStage, now: Instant) {
        let before = self.stages[agent];
        // The barrier may be lifted before the answer to the report arrives.
        let is_late =
            matches!((before, stage), (AgentStage::Lifted(lifted), AgentStage::Waits(epoch)) if lifted == epoch);
        if before == stage || is_late {
            return;
        }
        self.stages[agent] = stage;
        let target = self.target;
        self.lifted -= usize::from(before == AgentStage::Lifted(target));
        self.lifted += usize::from(stage == AgentStage::Lifted(target));
        // A lift before the answer proves that the report has arrived.
        let reported = stage == AgentStage::Waits(target)
            || (before, stage) == (AgentStage::Reports(target), AgentStage::Lifted(target));
        if reported {
            self.way.first_report.get_or_insert(now);
            self.way.reported = Some(now);
        }
        if stage == AgentStage::Starts {
            self.way.restarted = Some(now);
        } else if stage == AgentStage::Lifted(target) {
            self.way.lifted = Some(now);
        }
    }

    fn is_complete(&self) -> bool {
        self.lifted == self.stages.len()
    }
}

impl fmt::Display for RollRecord {
    /// `of 5 agents 3 wait at the barrier in epoch 2, 2 have lifted epoch 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: BTreeMap<AgentStage, usize> = BTreeMap::new();
        for stage in &self.stages {
            *counts.entry(*stage).or_default() += 1;
        }
        let parts: Vec<String> = counts.iter().map(|(stage, count)| format!("{count} {stage}")).collect();
        write!(f, "of {} agents {}; {} reports failed", self.stages.len(), parts.join(", "), self.way.failed_reports)
    }
}

/// The stages of all agents, which they note themselves.
#[derive(Debug)]
pub(super) struct Roll(watch::Sender<RollRecord>);

impl Roll {
    pub(super) fn new(agents: usize) -> Self {
        Self(watch::Sender::new(RollRecord::new(vec![AgentStage::Starts; agents])))
    }

    /// Makes this epoch the target. What agents do from now on belongs to the way there.
    pub(super) fn set_out(&self, target: i32) {
        self.0.send_modify(|record| record.set_out(target));
    }

    pub(super) fn note(&self, agent: usize, stage: AgentStage) {
        self.0.send_modify(|record| record.note(agent, stage, Instant::now()));
    }

    pub(super) fn note_failed_report(&self) {
        self.0.send_modify(|record| record.way.failed_reports += 1);
    }

    /// Waits until every agent has lifted its barrier in the target.
    pub(super) async fn all_lifted(&self, limit: Duration) -> Result<WayToEpoch> {
        let what = format!(
            "not all agents have lifted epoch {} (agents.log in the folder of the results has their errors)",
            self.0.borrow().target
        );
        reached(&self.0, limit, &what, |record| record.is_complete().then_some(record.way)).await
    }
}

#[cfg(test)]
mod tests {
    use super::AgentStage::{Lifted, Reports, Starts, Waits};
    use super::*;

    fn record(agents: usize, epoch: i32) -> RollRecord {
        let mut record = RollRecord::new(vec![Lifted(epoch); agents]);
        record.set_out(epoch + 1);
        record
    }

    #[test]
    fn way_ends_with_last_lift_and_keeps_its_times() {
        let (mut record, start) = (record(2, 1), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let steps = [
            (0, Starts, 1),
            (0, Reports(2), 2),
            (0, Waits(2), 3),
            (1, Starts, 4),
            (1, Reports(2), 5),
            (1, Waits(2), 6),
            (1, Lifted(2), 7),
            (0, Lifted(2), 8),
        ];
        for (agent, stage, when) in steps {
            assert!(!record.is_complete());
            record.note(agent, stage, at(when));
        }
        assert!(record.is_complete());
        let WayToEpoch { restarted, first_report, reported, lifted, .. } = record.way;
        assert_eq!([restarted, first_report, reported, lifted], [4, 3, 6, 8].map(|when| Some(at(when))));
        record.note(0, Starts, at(9));
        assert!(!record.is_complete(), "an agent has restarted again");
    }

    #[test]
    fn lift_before_answer_counts_as_answer_and_repetitions_count_once() {
        let (mut record, start) = (record(1, 1), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let steps = [(Starts, 1), (Reports(2), 2), (Lifted(2), 3), (Lifted(2), 4), (Waits(2), 5)];
        for (stage, when) in steps {
            record.note(0, stage, at(when));
        }
        assert!(record.is_complete());
        assert_eq!((record.way.reported, record.way.lifted), (Some(at(3)), Some(at(3))));
    }

    #[tokio::test]
    async fn wait_at_limit_counts_agents_by_stage() {
        let roll = Roll(watch::Sender::new(record(5, 1)));
        roll.note(0, Starts);
        roll.note(1, Waits(2));
        roll.note(2, Waits(2));
        roll.note_failed_report();
        let error = roll.all_lifted(Duration::from_millis(1)).await.unwrap_err().to_string();
        let state = "of 5 agents 1 start, 2 wait at the barrier in epoch 2, 2 have lifted epoch 1; 1 reports failed";
        assert!(error.contains("epoch 2") && error.ends_with(state), "{error}");
    }
}
