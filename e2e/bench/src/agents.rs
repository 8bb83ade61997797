//! The simulated agents: tasks of one process, each around the agent's own state machine, watch and report.
//!
//! What is missing of a real agent is its process: a restart of the Pod is a new state machine and, in the mode of the
//! sidecar, a new watch. It takes no longer than what kubelets write of it takes the API server, so that the benchmark
//! measures the control plane and not a kubelet.
//!
//! **Seats.** An administrator, as whom the agents come, is exempt from priority and fairness. Thousands of requests that
//! two cores carry out all at once take longer than the agents wait for an answer; what was given up goes on at the API
//! server and is asked for again, until nothing is answered in time. So the agents wait for a seat, as the API server
//! would let them wait: one for a report until it is answered, one for a watch until it has shown the JobSet. Their own
//! time limits begin with the seat.

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
use super::connections::Connections;
use super::jobset::{NAME, NAMESPACE};
use super::kubelet::Kubelets;
use super::roll::{Roll, Stage, Way};

/// Inputs that may wait for a state machine, as in the agent itself.
const QUEUE: usize = 16;

/// The agents of one JobSet. They end with this.
pub(super) struct Agents {
    shared: Arc<Shared>,
    orders: Vec<Arc<Notify>>,
    _tasks: JoinSet<()>,
}

/// What all agents know.
struct Shared {
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
        seats: usize,
        kubelets: Option<Kubelets>,
        mode: WatchMode,
        uid: String,
        pods: &[String],
    ) -> Self {
        let seats = Arc::new(Semaphore::new(seats.min(Semaphore::MAX_PERMITS)));
        let shared = Arc::new(Shared { connections, uid, mode, roll: Roll::new(pods.len()), kubelets, seats });
        shared.roll.set_out(1);
        let mut tasks = JoinSet::new();
        let orders = pods.iter().enumerate().map(|(index, pod)| {
            let restart = Arc::new(Notify::new());
            let agent =
                Simulated { shared: Arc::clone(&shared), index, pod: pod.clone(), restart: Arc::clone(&restart) };
            tasks.spawn(agent.run());
            restart
        });
        Self { orders: orders.collect(), shared, _tasks: tasks }
    }

    /// From now on all agents are to reach this epoch.
    pub(super) fn set_out(&self, epoch: i32) {
        self.shared.roll.set_out(epoch);
    }

    /// Lets one worker fail, and with it its agent restart. Gives the instant when the API server has stored the failure,
    /// if it can be seen before the agent's report.
    ///
    /// # Errors
    /// If a status cannot be written.
    pub(super) async fn fail(&self, index: usize, limit: Duration) -> Result<Option<Instant>> {
        let seen = match (&self.shared.kubelets, self.shared.mode) {
            (Some(kubelets), WatchMode::New) => {
                kubelets.fail(index, limit).await?;
                Some(Instant::now())
            }
            // Nothing of it is in the Pod's status: a supervisor's container goes on.
            _ => None,
        };
        self.orders[index].notify_one();
        Ok(seen)
    }

    /// Waits until all have lifted their barrier.
    ///
    /// # Errors
    /// At the limit; the text says how many agents are where.
    pub(super) async fn all_lifted(&self, limit: Duration) -> Result<Way> {
        self.shared.roll.all_lifted(limit).await
    }

    /// Waits until the kubelets have written all they had to.
    ///
    /// # Errors
    /// At the limit.
    pub(super) async fn statuses_settled(&self, limit: Duration) -> Result<()> {
        match &self.shared.kubelets {
            Some(kubelets) => kubelets.settled(limit).await,
            None => Ok(()),
        }
    }
}

/// One agent.
struct Simulated {
    shared: Arc<Shared>,
    index: usize,
    pod: String,
    /// The agent is to restart by itself.
    restart: Arc<Notify>,
}

/// A watch, and the inputs that it and the reports give.
struct Inputs {
    sender: mpsc::Sender<Input>,
    receiver: mpsc::Receiver<Input>,
    /// Held until the watch has shown something.
    seat: Option<OwnedSemaphorePermit>,
    _watch: AbortOnDropHandle<()>,
}

impl Simulated {
    async fn run(self) {
        loop {
            let inputs = self.watch().await;
            // The watch ends with it, as its process would.
            self.live(inputs).await;
            self.shared.roll.note(self.index, Stage::Starts);
            self.restart().await;
        }
    }

    /// What lies between the end of an agent and its next beginning.
    async fn restart(&self) {
        if let Some(kubelets) = &self.shared.kubelets {
            kubelets.restart(self.index).await;
        }
    }

    async fn watch(&self) -> Inputs {
        // Nobody closes the semaphore.
        let seat = Arc::clone(&self.shared.seats).acquire_owned().await.ok();
        let (sender, receiver) = mpsc::channel(QUEUE);
        let client = self.shared.connections.of(self.index);
        let watch = tokio::spawn(watch::run(client, NAMESPACE.to_owned(), NAME.to_owned(), sender.clone()));
        Inputs { sender, receiver, seat, _watch: AbortOnDropHandle::new(watch) }
    }

    /// From the agent's start to its restart, which a supervisor survives.
    async fn live(&self, mut inputs: Inputs) {
        let mode = match self.shared.mode {
            WatchMode::New => Mode::Sidecar { saves: false },
            WatchMode::Kept => Mode::Supervisor { fatal: BTreeSet::new() },
        };
        let supervises = self.shared.mode == WatchMode::Kept;
        let mut agent = Agent::new(Some(self.shared.uid.clone()), mode);
        let mut timer = None;
        let mut stopped = None;
        loop {
            let input = match stopped.take() {
                Some(input) => Some(input),
                None => self.next(&mut inputs, &mut timer).await,
            };
            let input = match input {
                Some(input) => input,
                None if supervises => self.worker_exits(1).await,
                None => return,
            };
            inputs.seat = None;
            match &input {
                Input::Reported { epoch } => self.shared.roll.note(self.index, Stage::Waits(*epoch)),
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
                    Output::StopWorker { .. } => stopped = Some(self.worker_exits(143).await),
                    Output::Restart { .. } | Output::Exit { .. } => return,
                    // Nobody terminates a worker here, and none has anything to save.
                    Output::Save { .. } | Output::TerminateWorker => {}
                }
            }
        }
    }

    /// A supervised worker ends.
    async fn worker_exits(&self, code: u8) -> Input {
        self.shared.roll.note(self.index, Stage::Starts);
        self.restart().await;
        Input::WorkerExited { code }
    }

    /// What happens next; nothing when the agent is to restart by itself.
    async fn next(&self, inputs: &mut Inputs, timer: &mut Option<Instant>) -> Option<Input> {
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
        self.shared.roll.note(self.index, Stage::Reports(epoch));
        let (client, pod) = (self.shared.connections.of(self.index), self.pod.clone());
        let seats = Arc::clone(&self.shared.seats);
        tokio::spawn(async move {
            let _seat = seats.acquire_owned().await;
            let answer = report::report(&client, NAMESPACE, &pod, epoch).await;
            // The receiver is gone when the agent has restarted meanwhile.
            let _ = answers.send(answer).await;
        });
    }

    fn lift(&self, epoch: Option<i32>) {
        // Without an epoch the JobSet does not restart in place; then the group never gets where it is waited for.
        let Some(epoch) = epoch else { return };
        self.shared.roll.note(self.index, Stage::Lifted(epoch));
        if let Some(kubelets) = &self.shared.kubelets {
            kubelets.lift(self.index);
        }
    }
}
