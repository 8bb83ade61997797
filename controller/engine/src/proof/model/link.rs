//! An agent's connection to a relay, and what is on its way there and back.

use super::node::ModelAgent;
use crate::proof::ProgressWord;

/// The connection of one process.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(super) struct Link {
    /// Whether there is a connection.
    pub up: bool,
    /// The newest report that the relay knows. Its hello says so.
    pub known: Option<ModelReport>,
    pub hello: Hello,
    /// The report that is on its way to the leader.
    pub report: Option<ModelReport>,
    /// Statements that are on their way to the agent, in order.
    pub statements: Vec<ModelStatement>,
    /// Whether the relay passes on nothing about the JobSet any more. It passes on what is not about it.
    pub withheld: bool,
}

/// What an agent reports over the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelReport {
    pub epoch: i32,
    pub progress: Option<ProgressWord>,
}

/// How far the hello of a connection has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Hello {
    /// The leader has not heard of it, or this leader has not.
    #[default]
    OnItsWay,
    /// It waits for a read of the JobSet.
    Waits,
    /// The JobSet was read, and the answer is not sent.
    Read((i32, i32)),
    /// The answer was sent.
    Answered,
}

/// `syncedEpoch` and `deprecatedEpoch`, as a leader says them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ModelStatement {
    pub epochs: (i32, i32),
    pub is_answer: bool,
}

impl Link {
    /// Whether the leader that leads knows of the connection.
    pub(super) fn is_known(&self) -> bool {
        self.up && self.hello != Hello::OnItsWay
    }

    pub(super) fn tell(&mut self, epochs: (i32, i32), is_answer: bool) {
        if !self.withheld {
            self.statements.push(ModelStatement { epochs, is_answer });
        }
    }
}

impl ModelAgent {
    /// What it reports of this epoch.
    pub(super) fn says(&self, epoch: i32) -> ModelReport {
        ModelReport { epoch, progress: self.progress }
    }

    /// Whether a report, or its annotation, is on its way, or will be without the agent.
    pub(super) fn will_report(&self) -> bool {
        self.writing.is_some() || self.write_due.is_some() || self.link.report.is_some()
    }
}
