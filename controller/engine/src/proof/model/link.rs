//! An agent's connection to a relay, and what is on its way there and back.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use jobset_agent::channels::ChannelInput;
use jobset_agent::liveness::Liveness;
use jobset_stream::message::{GroupState, Nonce, Statement};
use serde_json::json;

use super::node::{ModelAgent, UID};
use super::system::System;
use crate::proof::{ProgressWord, RuleMutation};

static NONCES: LazyLock<[Nonce; 2]> =
    LazyLock::new(|| ["own", "another"].map(|text| serde_json::from_value(json!(text)).unwrap()));

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
    /// Whether the agent has heard the answer to its hello.
    pub answered: bool,
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
    pub to: Addressee,
    /// Each version of the JobSet has a time, after those before it. All that is said of it has that time, but what is said of an old one
    /// now: `None`.
    pub time: Option<i32>,
    /// Whether the JobSet does not restart in place.
    pub bypass: bool,
}

/// For whom a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Addressee {
    /// All agents.
    Group,
    /// The answer to the hello of this connection.
    Agent,
    /// The answer to another hello.
    Another,
}

impl ModelStatement {
    pub(super) fn new(epochs: (i32, i32), to: Addressee) -> Self {
        Self { epochs, to, time: Some(time_of(epochs)), bypass: false }
    }

    /// What an agent takes it for that is broken. It takes what is old for what has been said now.
    fn mistaken(mut self, broken: Option<RuleMutation>) -> Self {
        match (broken, self.to) {
            (Some(RuleMutation::BroadcastsTakenForAnswers), Addressee::Group)
            | (Some(RuleMutation::AnswersToOthersTaken), Addressee::Another) => self.to = Addressee::Agent,
            (Some(RuleMutation::OldStatementsTaken), _) => self.time = None,
            _ => {}
        }
        self
    }
}

/// The time of a version of the JobSet: its epochs are greater than those of all versions before.
pub(super) fn time_of((synced, deprecated): (i32, i32)) -> i32 {
    synced + deprecated
}

impl Link {
    /// Whether the leader that leads knows of the connection.
    pub(super) fn is_known(&self) -> bool {
        self.up && self.hello != Hello::OnItsWay
    }

    pub(super) fn tell(&mut self, epochs: (i32, i32), to: Addressee) {
        self.statements.push(ModelStatement::new(epochs, to));
    }
}

/// What a connection has let pass of a statement, if it was answered by a version of this time.
pub(super) type Heard = HashMap<(ModelStatement, Option<i32>), Option<ChannelInput>>;

impl System {
    /// What the agent takes of a statement that reaches it: nothing if the rules of its connection do not let it pass.
    pub(super) fn heard(&self, process: &ModelAgent, statement: ModelStatement) -> Option<ChannelInput> {
        // What it knows it does not need to hear again on this connection.
        let known = process.link.answered.then(|| time_of(process.agent.told()));
        let mut heard = self.heard.borrow_mut();
        heard.entry((statement, known)).or_insert_with(|| hear(statement.mistaken(self.setting.broken), known)).clone()
    }
}

fn hear(statement: ModelStatement, known: Option<i32>) -> Option<ChannelInput> {
    let ModelStatement { epochs: (synced, deprecated), to, time, bypass } = statement;
    let time: i64 = time.unwrap_or(known.map_or(0, |known| known + 1)).into();
    let group = GroupState { uid: UID.to_owned(), synced, deprecated, failed: false, bypass, pods: 2, pause: None };
    let ([own, another], now) = (&*NONCES, Instant::now());
    let mut liveness = Liveness::new(UID.to_owned(), own.clone(), now, Duration::ZERO);
    if let Some(known) = known {
        liveness.hear(Statement::answer(known.into(), own.clone(), group.clone()), now);
    }
    let statement = match to {
        Addressee::Group => Statement::broadcast(time, group),
        Addressee::Agent => Statement::answer(time, own.clone(), group),
        Addressee::Another => Statement::answer(time, another.clone(), group),
    };
    liveness.hear(statement, now)
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
