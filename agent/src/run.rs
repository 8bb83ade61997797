//! The agent's event loop: it passes each event to the state machine as an input and carries out the outputs.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::process::Signal;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::args::{Config, Role};
use crate::backoff::jittered;
use crate::barrier::Barrier;
use crate::connect::connect;
use crate::decide::{Agent, Input, Output};
use crate::epoch_file::EpochFile;
use crate::error::Error;
use crate::probe;
use crate::signals::{SignalEvent, Signals};
use crate::start::AgentStart;
use crate::termination_log;
use crate::transport::{Names, Transport, until};
use crate::worker::{self, Worker};
use crate::worker_exit::{ProcessEnd, WorkerExit};

/// Capacity of the queue of inputs for the state machine.
const INPUT_QUEUE: usize = 16;
/// Exit code of a supervisor whose worker cannot be killed: 128 and the number of SIGKILL. It ends the container.
const KILLED: u8 = 137;

/// Runs until the Pod has to restart, the supervised worker has ended for good or SIGTERM arrives. Returns the exit code.
///
/// # Errors
/// The agent cannot start, for example because it has no credentials or its port is in use. No worker has run.
pub async fn run(config: Config, start: AgentStart, signals: &mut Signals) -> Result<u8, Error> {
    if config.role.supervises() {
        worker::adopt_orphans().map_err(Error::Orphans)?;
    }
    let epoch_file = match &config.role {
        Role::Sidecar { epoch_file, .. } => epoch_file.clone(),
        Role::Supervisor { .. } => None,
    };
    let epoch_file = EpochFile::empty(epoch_file).map_err(Error::EpochFile)?;
    if let Role::Sidecar { save: Some(hook), .. } = &config.role {
        hook.remove_file();
    }
    let mut agent = Agent::new(config.jobset_uid.clone(), config.role.mode());
    let barrier = watch::Sender::new(agent.barrier());
    probe::start(&config.barrier_ports, &config.barrier_paths, &barrier).await?;

    let client = connect().await?;
    let (sender, mut inputs) = mpsc::channel(INPUT_QUEUE);
    let Config { namespace, pod, jobset, relay, .. } = config.clone();
    let transport = Transport::start(client, Names { namespace, pod, jobset }, Arc::new(start), relay);
    let (ended, mut ended_workers) = mpsc::channel(1);
    let mut executor = Executor { config, transport, sender, epoch_file, timer: None, worker: None, ended, exit: None };
    // Inputs that are known at once. An output may have some as its immediate result.
    let mut ready = VecDeque::new();
    loop {
        tokio::select! {
            biased;
            event = signals.next() => ready.extend(executor.on_signal(event)),
            () = until(executor.worker.as_ref().and_then(Worker::deadline)) => {
                if executor.worker.as_mut().is_some_and(Worker::on_deadline) {
                    const TEXT: &str = "processes of the worker cannot be killed; exiting, so that they end with the container";
                    tracing::error!("{TEXT}");
                    termination_log::write(TEXT);
                    return Ok(KILLED);
                }
            }
            event = executor.transport.next() => ready.extend(executor.transport.on(event)),
            Some(input) = inputs.recv() => ready.push_back(input),
            Some(ended) = ended_workers.recv() => ready.push_back(executor.on_ended(ended)),
            () = until(executor.timer) => {
                executor.timer = None;
                ready.push_back(Input::Timer);
            }
        }
        while let Some(input) = ready.pop_front() {
            for output in agent.step(input) {
                match executor.execute(output) {
                    Outcome::Inputs(inputs) => ready.extend(inputs),
                    Outcome::Exit(code) => {
                        executor.settle().await;
                        return Ok(code);
                    }
                }
            }
        }
        // The barrier is published after the epoch file is written: the kubelet may start the worker once it is lifted.
        publish(&barrier, agent.barrier());
    }
}

/// Publishes the barrier to the probe.
fn publish(barrier: &watch::Sender<Barrier>, now: Barrier) {
    barrier.send_if_modified(|published| {
        let modified = *published != now;
        if modified && matches!(now, Barrier::AwaitsOtherJobSet { .. }) {
            tracing::warn!("{now}: the JobSet of this Pod was deleted, or JOBSET_UID is wrong");
        }
        *published = now;
        modified
    });
}

/// The result of an output.
enum Outcome {
    /// The output is carried out, and these inputs are known at once. Others arrive later through the queues.
    Inputs(Vec<Input>),
    /// The agent exits with this code.
    Exit(u8),
}

/// Carries out the outputs of the state machine.
struct Executor {
    config: Config,
    transport: Transport,
    sender: mpsc::Sender<Input>,
    epoch_file: EpochFile,
    timer: Option<Instant>,
    worker: Option<Worker>,
    /// Takes workers whose output is copied.
    ended: mpsc::Sender<EndedWorker>,
    /// How the worker of the last epoch failed, until the next one starts.
    exit: Option<Arc<WorkerExit>>,
}

/// A worker of which no process is left.
struct EndedWorker {
    epoch: Option<i32>,
    end: ProcessEnd,
    was_asked: bool,
    lines: String,
}

impl Executor {
    /// Handles a signal. Returns the input for the state machine, if the signal is one.
    fn on_signal(&mut self, event: SignalEvent) -> Option<Input> {
        match (event, &mut self.worker) {
            (SignalEvent::ChildEnded, Some(worker)) => {
                let end = worker.reap()?;
                tracing::info!(code = end.code, "the worker has ended");
                if let Some(worker) = self.worker.take() {
                    self.drain(worker, end);
                }
            }
            (SignalEvent::ChildEnded, None) => worker::reap_orphans(),
            (SignalEvent::Forward(number), Some(worker)) => worker.signal(number),
            (SignalEvent::Terminate, _) => return Some(Input::Terminate),
            // SIGINT at a terminal ends the agent when no worker runs.
            (SignalEvent::Forward(number), None) if number == Signal::INT.as_raw() => return Some(Input::Terminate),
            (SignalEvent::Forward(_), None) => {}
        }
        None
    }

    /// Waits until the rest of the output of a worker is copied.
    fn drain(&self, worker: Worker, end: ProcessEnd) {
        let (sender, epoch, was_asked) = (self.ended.clone(), worker.epoch(), worker.was_asked());
        tokio::spawn(async move {
            let lines = worker.into_output().drained().await;
            let _ = sender.send(EndedWorker { epoch, end, was_asked, lines }).await;
        });
    }

    /// Keeps how a worker failed, for the next report and for the termination message.
    fn on_ended(&mut self, EndedWorker { epoch, end, was_asked, lines }: EndedWorker) -> Input {
        let has_failed = end.code != 0 && !was_asked;
        self.exit = has_failed.then(|| Arc::new(WorkerExit::new(epoch.unwrap_or(0), end, lines)));
        Input::WorkerExited { code: end.code }
    }

    /// Writes what a supervisor has put off. A sidecar cannot tell the end of its Pod from a restart in place, which must not wait.
    async fn settle(&self) {
        if self.config.role.supervises() {
            self.transport.settle().await;
        }
    }

    /// Carries out one output.
    fn execute(&mut self, output: Output) -> Outcome {
        match output {
            Output::Report { epoch } => {
                self.timer = None;
                return Outcome::Inputs(self.transport.report(epoch, self.exit.clone()));
            }
            Output::SetTimer(wait) => self.timer = Some(Instant::now() + jittered(wait)),
            Output::Lift { epoch } => {
                self.timer = None;
                return self.lift(epoch);
            }
            Output::Save { epoch } => self.save(epoch),
            Output::StopWorker { epoch, deprecated } => {
                if let (Role::Supervisor { grace, .. }, Some(worker)) = (&self.config.role, &mut self.worker) {
                    tracing::info!(epoch, deprecated, grace = grace.as_secs_f64(), "stopping the worker");
                    worker.stop(*grace);
                }
            }
            Output::TerminateWorker => {
                tracing::info!("SIGTERM received; passing it on to the worker");
                if let Some(worker) = &mut self.worker {
                    worker.terminate();
                }
            }
            Output::Restart { epoch, deprecated } => {
                let code = match &self.config.role {
                    Role::Sidecar { restart_exit_code, .. } => restart_exit_code.get(),
                    Role::Supervisor { .. } => KILLED,
                };
                tracing::info!(epoch, deprecated, exit_code = code, "restarting the Pod in place");
                return Outcome::Exit(code);
            }
            Output::Exit { code } => {
                tracing::info!(code, "exiting");
                if let Some(exit) = self.exit.as_ref().filter(|_| code != 0) {
                    exit.write_termination_message();
                }
                return Outcome::Exit(code);
            }
        }
        Outcome::Inputs(Vec::new())
    }

    fn lift(&mut self, epoch: Option<i32>) -> Outcome {
        if let Some(epoch) = epoch {
            tracing::info!(epoch, "barrier lifted");
        } else {
            tracing::info!("barrier lifted; the JobSet does not restart in place");
        }
        match &self.config.role {
            Role::Sidecar { .. } => {
                if let Some(epoch) = epoch
                    && let Err(error) = self.epoch_file.write(epoch)
                {
                    tracing::warn!(%error, "cannot write the epoch to the file that EPOCH_FILE names");
                }
                Outcome::Inputs(Vec::new())
            }
            Role::Supervisor { command, .. } => {
                termination_log::clear();
                self.exit = None;
                match Worker::start(command, epoch) {
                    Ok(worker) => {
                        self.worker = Some(worker);
                        Outcome::Inputs(Vec::new())
                    }
                    Err(error) => {
                        tracing::error!("{error}");
                        termination_log::write(&error.to_string());
                        Outcome::Inputs(vec![Input::WorkerNotStarted { code: error.code() }])
                    }
                }
            }
        }
    }

    fn save(&self, epoch: i32) {
        let Role::Sidecar { save: Some(hook), .. } = &self.config.role else { return };
        let (hook, sender) = (hook.clone(), self.sender.clone());
        tokio::spawn(async move {
            hook.run(epoch).await;
            let _ = sender.send(Input::Saved).await;
        });
    }
}
