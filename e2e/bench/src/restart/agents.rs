//! The simulated agents: tasks of one process, each around the agent's own state machine, and its own watch and report or
//! its own stream ([`Link`]).
//!
//! A simulated agent has no process: a restart of the Pod is a new state machine and, as a sidecar, a new watch or
//! connection. It takes no time.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use jobset_agent::backoff::jittered;
use jobset_agent::decide::{Agent, Input, Mode, Output};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::case::WatchMode;
use super::link::{Link, Links};
use super::roll::{AgentStage, Roll, WayToEpoch};

/// The agents of one JobSet. They end when this is dropped.
pub(super) struct Agents {
    shared: Arc<SharedByAgents>,
    /// Each makes one agent restart.
    restarts: Vec<Arc<Notify>>,
    _tasks: JoinSet<()>,
}

struct SharedByAgents {
    links: Links,
    uid: String,
    mode: WatchMode,
    roll: Roll,
}

impl Agents {
    pub(super) fn start(links: Links, mode: WatchMode, uid: String, pods: &[String]) -> Self {
        let shared = Arc::new(SharedByAgents { links, uid, mode, roll: Roll::new(pods.len()) });
        shared.roll.set_out(1);
        let mut tasks = JoinSet::new();
        let restarts = pods.iter().enumerate().map(|(index, pod)| {
            let restart = Arc::new(Notify::new());
            let (shared, pod) = (Arc::clone(&shared), pod.clone());
            tasks.spawn(SimulatedAgent { shared, index, pod, restart: Arc::clone(&restart) }.run());
            restart
        });
        Self { restarts: restarts.collect(), shared, _tasks: tasks }
    }

    /// From now on all agents must reach this epoch.
    pub(super) fn set_out(&self, epoch: i32) {
        self.shared.roll.set_out(epoch);
    }

    /// Lets one worker fail, and with it its agent restart.
    pub(super) fn fail(&self, index: usize) {
        self.restarts[index].notify_one();
    }

    /// Waits until all agents have lifted their barrier.
    pub(super) async fn all_lifted(&self, limit: Duration) -> Result<WayToEpoch> {
        self.shared.roll.all_lifted(limit).await
    }
}

struct SimulatedAgent {
    shared: Arc<SharedByAgents>,
    index: usize,
    pod: String,
    restart: Arc<Notify>,
}

impl SimulatedAgent {
    async fn run(self) {
        loop {
            let link = self.shared.links.open(self.index, &self.pod, &self.shared.uid).await;
            // The link ends with its process.
            self.live(link).await;
            self.note(AgentStage::Starts);
        }
    }

    /// From the agent's start to its end; a supervisor outlives its worker and never ends.
    async fn live(&self, mut link: Link) {
        let mode = match self.shared.mode {
            WatchMode::New => Mode::Sidecar { saves: false },
            WatchMode::Kept => Mode::Supervisor { fatal: BTreeSet::new() },
        };
        let mut agent = Agent::new(Some(self.shared.uid.clone()), mode);
        let mut timer = None;
        // Inputs that are known at once.
        let mut ready = VecDeque::new();
        loop {
            let Some(input) = ready.pop_front() else {
                match self.next(&mut link, &mut timer).await {
                    Some(inputs) => ready.extend(inputs),
                    None if self.shared.mode == WatchMode::Kept => ready.push_back(self.worker_exits(1)),
                    None => return,
                }
                continue;
            };
            match &input {
                Input::Reported { epoch } => self.note(AgentStage::Waits(*epoch)),
                Input::ReportFailed { .. } => self.shared.roll.note_failed_report(),
                _ => {}
            }
            for output in agent.step(input) {
                match output {
                    Output::Report { epoch } => {
                        timer = None;
                        self.note(AgentStage::Reports(epoch));
                        ready.extend(link.report(epoch));
                    }
                    Output::SetTimer(wait) => timer = Some(Instant::now() + jittered(wait)),
                    Output::Lift { epoch } => {
                        timer = None;
                        self.lift(epoch);
                    }
                    Output::StopWorker { .. } => ready.push_back(self.worker_exits(143)),
                    Output::Restart { .. } | Output::Exit { .. } => return,
                    // Nobody terminates a worker here, and no worker has state to save.
                    Output::Save { .. } | Output::TerminateWorker => {}
                }
            }
        }
    }

    fn worker_exits(&self, code: u8) -> Input {
        self.note(AgentStage::Starts);
        Input::WorkerExited { code }
    }

    /// The next inputs, or `None` when the agent must restart by itself.
    async fn next(&self, link: &mut Link, timer: &mut Option<Instant>) -> Option<Vec<Input>> {
        tokio::select! {
            biased;
            () = self.restart.notified() => None,
            inputs = link.next() => Some(inputs),
            () = sleep_until(timer.unwrap_or_else(Instant::now).into()), if timer.is_some() => {
                *timer = None;
                Some(vec![Input::Timer])
            }
        }
    }

    fn lift(&self, epoch: Option<i32>) {
        // Without an epoch the JobSet does not restart in place; then the wait for the group reaches its limit.
        let Some(epoch) = epoch else { return };
        self.note(AgentStage::Lifted(epoch));
    }

    fn note(&self, stage: AgentStage) {
        self.shared.roll.note(self.index, stage);
    }
}
