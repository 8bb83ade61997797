//! The simulated agents: tasks of one process, each around the agent's own state machine, watch and report.
//!
//! A simulated agent has no process: a restart of the Pod is a new state machine and, as a sidecar, a new watch. It takes
//! no longer than the API server takes for what kubelets write about it.
//!
//! **Seats.** The agents have the identity of an administrator, who is exempt from priority and fairness. Thousands of
//! concurrent requests on two cores would take longer than agents wait for an answer; each would be sent again, until no
//! answer is in time. So the agents wait for a seat, as the API server would let them wait: for a report until it is
//! answered, for a watch until it has shown the JobSet. Their own time limits begin with the seat.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use jobset_agent::backoff::jittered;
use jobset_agent::decide::{Agent, Input, Mode, Output};
use jobset_agent::{report, watch};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tokio_util::task::AbortOnDropHandle;

use super::case::WatchMode;
use super::jobset::{NAME, NAMESPACE};
use super::kubelet::Kubelets;
use super::roll::{AgentStage, Roll, WayToEpoch};
use crate::connections::Connections;

/// Concurrent requests of agents: the share of workloads (100 of 245) in the 600 requests that an API server handles at
/// once by default.
const SEATS: usize = 245;
/// Inputs that may wait for a state machine, as in the agent itself.
const QUEUE: usize = 16;

/// The agents of one JobSet. They end when this is dropped.
pub(super) struct Agents {
    shared: Arc<SharedByAgents>,
    /// Each makes one agent restart.
    restarts: Vec<Arc<Notify>>,
    _tasks: JoinSet<()>,
}

struct SharedByAgents {
    connections: Connections,
    /// UID of the JobSet.
    uid: String,
    mode: WatchMode,
    roll: Roll,
    kubelets: Option<Kubelets>,
    seats: Arc<Semaphore>,
}

impl Agents {
    /// Starts the agents of these Pods, all at once.
    pub(super) fn start(
        connections: Connections,
        kubelets: Option<Kubelets>,
        mode: WatchMode,
        uid: String,
        pods: &[String],
    ) -> Self {
        let seats = Arc::new(Semaphore::new(SEATS));
        let shared = Arc::new(SharedByAgents { connections, uid, mode, roll: Roll::new(pods.len()), kubelets, seats });
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

    /// Lets one worker fail, and with it its agent restart. Gives the instant when the API server has stored the failure,
    /// if it is visible before the agent's report: a supervisor's container continues, and the Pod's status stays.
    pub(super) async fn fail(&self, index: usize, limit: Duration) -> Result<Option<Instant>> {
        let mut stored = None;
        if let (Some(kubelets), WatchMode::New) = (&self.shared.kubelets, self.shared.mode) {
            kubelets.fail(index, limit).await?;
            stored = Some(Instant::now());
        }
        self.restarts[index].notify_one();
        Ok(stored)
    }

    /// Waits until all agents have lifted their barrier.
    pub(super) async fn all_lifted(&self, limit: Duration) -> Result<WayToEpoch> {
        self.shared.roll.all_lifted(limit).await
    }

    /// Waits until the kubelets have written all statuses.
    pub(super) async fn statuses_settled(&self, limit: Duration) -> Result<()> {
        match &self.shared.kubelets {
            Some(kubelets) => kubelets.settled(limit).await,
            None => Ok(()),
        }
    }
}

/// One agent.
struct SimulatedAgent {
    shared: Arc<SharedByAgents>,
    index: usize,
    pod: String,
    /// Makes the agent restart by itself.
    restart: Arc<Notify>,
}

/// A watch, and the inputs that the watch and the reports give.
struct AgentInputs {
    sender: mpsc::Sender<Input>,
    receiver: mpsc::Receiver<Input>,
    /// Held until the watch has shown the JobSet.
    seat: Option<OwnedSemaphorePermit>,
    _watch: AbortOnDropHandle<()>,
}

impl SimulatedAgent {
    async fn run(self) {
        loop {
            let inputs = self.watch().await;
            // The watch ends with its process.
            self.live(inputs).await;
            self.restarts().await;
        }
    }

    /// What lies between the end of a container and its next start.
    async fn restarts(&self) {
        self.note(AgentStage::Starts);
        if let Some(kubelets) = &self.shared.kubelets {
            kubelets.restart(self.index).await;
        }
    }

    async fn watch(&self) -> AgentInputs {
        // Nobody closes the semaphore.
        let seat = Arc::clone(&self.shared.seats).acquire_owned().await.ok();
        let (sender, receiver) = mpsc::channel(QUEUE);
        let client = self.shared.connections.of(self.index);
        let watch = tokio::spawn(watch::run(client, NAMESPACE.to_owned(), NAME.to_owned(), sender.clone()));
        AgentInputs { sender, receiver, seat, _watch: AbortOnDropHandle::new(watch) }
    }

    /// From the agent's start to its end; a supervisor outlives its worker and never ends.
    async fn live(&self, mut inputs: AgentInputs) {
        let mode = match self.shared.mode {
            WatchMode::New => Mode::Sidecar { saves: false },
            WatchMode::Kept => Mode::Supervisor { fatal: BTreeSet::new() },
        };
        let mut agent = Agent::new(Some(self.shared.uid.clone()), mode);
        let mut timer = None;
        let mut stopped = None;
        loop {
            let next = match stopped.take() {
                Some(code) => Some(self.worker_exits(code).await),
                None => self.next(&mut inputs, &mut timer).await,
            };
            let input = match next {
                Some(input) => input,
                None if self.shared.mode == WatchMode::Kept => self.worker_exits(1).await,
                None => return,
            };
            inputs.seat = None;
            match &input {
                Input::Reported { epoch } => self.note(AgentStage::Waits(*epoch)),
                Input::ReportFailed { .. } => self.shared.roll.note_failed_report(),
                _ => {}
            }
            for output in agent.step(input) {
                match output {
                    Output::Report { epoch } => {
                        timer = None;
                        self.report(epoch, inputs.sender.clone());
                    }
                    Output::SetTimer(wait) => timer = Some(Instant::now() + jittered(wait)),
                    Output::Lift { epoch } => {
                        timer = None;
                        self.lift(epoch);
                    }
                    Output::StopWorker { .. } => stopped = Some(143),
                    Output::Restart { .. } | Output::Exit { .. } => return,
                    // Nobody terminates a worker here, and no worker has state to save.
                    Output::Save { .. } | Output::TerminateWorker => {}
                }
            }
        }
    }

    /// A supervised worker ends.
    async fn worker_exits(&self, code: u8) -> Input {
        self.restarts().await;
        Input::WorkerExited { code }
    }

    /// The next input, or `None` when the agent must restart by itself.
    async fn next(&self, inputs: &mut AgentInputs, timer: &mut Option<Instant>) -> Option<Input> {
        tokio::select! {
            biased;
            () = self.restart.notified() => None,
            Some(input) = inputs.receiver.recv() => Some(input),
            () = sleep_until(timer.unwrap_or_else(Instant::now).into()), if timer.is_some() => {
                *timer = None;
                Some(Input::Timer)
            }
        }
    }

    fn report(&self, epoch: i32, answers: mpsc::Sender<Input>) {
        self.note(AgentStage::Reports(epoch));
        let (client, pod) = (self.shared.connections.of(self.index), self.pod.clone());
        let seats = Arc::clone(&self.shared.seats);
        tokio::spawn(async move {
            let _seat = seats.acquire_owned().await;
            let answer = report::report(&client, NAMESPACE, &pod, epoch, None).await;
            // The receiver is gone if the agent has restarted.
            let _ = answers.send(answer).await;
        });
    }

    fn lift(&self, epoch: Option<i32>) {
        // Without an epoch the JobSet does not restart in place; then the wait for the group reaches its limit.
        let Some(epoch) = epoch else { return };
        self.note(AgentStage::Lifted(epoch));
        if let Some(kubelets) = &self.shared.kubelets {
            kubelets.lift(self.index);
        }
    }

    fn note(&self, stage: AgentStage) {
        self.shared.roll.note(self.index, stage);
    }
}
