//! The agent's event loop: it passes each event to the state machine as an input and carries out the outputs.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::process::Signal;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::annotation::Annotation;
use crate::args::{Config, Role};
use crate::backoff::jittered;
use crate::barrier::Barrier;
use crate::connect::connect;
use crate::decide::{Agent, Input, Output};
use crate::error::Error;
use crate::follow::Follower;
use crate::group::GroupFacts;
use crate::progress_file::FileState;
use crate::signals::{SignalEvent, Signals};
use crate::transport::{Transport, until};
use crate::worker::{self, Worker};
use crate::worker_exit::{ProcessEnd, WorkerExit};
use crate::{epoch_file, log, probe, termination_log};

/// Exit code of a supervisor whose worker cannot be killed: 128 and the number of SIGKILL. It ends the container.
const KILLED: u8 = 137;

/// Runs until the Pod has to restart, the supervised worker has ended for good or SIGTERM arrives. Returns the exit code.
///
/// # Errors
/// The agent cannot start, for example because it has no credentials or its port is in use. No worker has run.
pub async fn run(config: Config, start: Annotation, signals: &mut Signals) -> Result<u8, Error> {
    let mut last_lift = None;
    match &config.role {
        Role::Supervisor { .. } => worker::adopt_orphans().map_err(Error::Orphans)?,
        Role::Sidecar { epoch_file, save, .. } => {
            if let Some(path) = epoch_file {
                last_lift = epoch_file::last_lift(path);
                epoch_file::write(path, None).map_err(Error::EpochFile)?;
            }
            if let Some(hook) = save {
                hook.remove_file();
            }
        }
    }
    let mut agent = Agent::new(config.jobset_uid.clone(), config.role.mode());
    let barrier = watch::Sender::new(agent.barrier());
    probe::start(&config.barrier_ports, &config.barrier_paths, &barrier).await?;

    let client = connect().await?;
    let Config { names, jobset_uid, relay, progress, .. } = config.clone();
    let group = Arc::<GroupFacts>::default();
    let follower = Follower::start(progress, Arc::clone(&group), last_lift).await;
    let transport = Transport::start(client, names, jobset_uid, Arc::new(start), relay, group);
    let (sender, mut finished) = mpsc::channel(1);
    let ready = VecDeque::new();
    let mut executor =
        Executor { config, transport, follower, finished: sender, ready, timer: None, worker: None, exit: None };
    loop {
        tokio::select! {
            biased;
            event = signals.next() => executor.on_signal(event),
            () = until(executor.worker.as_ref().and_then(|worker| worker.kill_at)) => {
                if executor.worker.as_mut().is_some_and(Worker::on_deadline) {
                    fail("processes of the worker cannot be killed; exiting, so that they end with the container");
                    return Ok(KILLED);
                }
            }
            event = executor.transport.next() => executor.ready.extend(executor.transport.on(event)),
            Some(ended) = finished.recv() => executor.on_finished(ended),
            event = executor.follower.next() => {
                if let Some(update) = executor.follower.on(event) {
                    executor.ready.extend(executor.transport.report_progress(update));
                }
            }
            () = until(executor.timer) => {
                executor.timer = None;
                executor.ready.push_back(Input::Timer);
            }
        }
        while let Some(input) = executor.ready.pop_front() {
            for output in agent.step(input) {
                if let Some(code) = executor.execute(output) {
                    // A sidecar cannot tell the end of its Pod from a restart in place, which must not wait.
                    if executor.config.role.supervises() {
                        executor.transport.settle().await;
                    }
                    return Ok(code);
                }
            }
        }
        // The barrier is published after the epoch file is written: the kubelet may start the worker once it is lifted.
        publish(&barrier, agent.barrier());
    }
}

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

/// Logs why the container ends, and leaves it in the status of the Pod.
fn fail(cause: &str) {
    tracing::error!("{cause}");
    termination_log::write(cause);
}

/// The end of a task of the executor.
enum Finished {
    Saved,
    /// No process of the worker is left, and its output is copied.
    Worker {
        code: u8,
        exit: Option<WorkerExit>,
        last: Option<FileState>,
    },
}

/// Carries out the outputs of the state machine.
struct Executor {
    config: Config,
    transport: Transport,
    follower: Follower,
    finished: mpsc::Sender<Finished>,
    /// Inputs that are known at once. An output may have some as its immediate result.
    ready: VecDeque<Input>,
    timer: Option<Instant>,
    worker: Option<Worker>,
    /// How the worker of the last epoch failed, until the next one starts.
    exit: Option<Arc<WorkerExit>>,
}

impl Executor {
    fn on_signal(&mut self, event: SignalEvent) {
        match (event, &mut self.worker) {
            (SignalEvent::ChildEnded, Some(worker)) => {
                if let Some(end) = worker.reap() {
                    self.on_worker_end(end);
                }
            }
            (SignalEvent::ChildEnded, None) => worker::reap_orphans(),
            (SignalEvent::Forward(number), Some(worker)) => worker.signal(number),
            (SignalEvent::Terminate, _) => self.ready.push_back(Input::Terminate),
            // SIGINT at a terminal ends the agent when no worker runs.
            (SignalEvent::Forward(number), None) if number == Signal::INT.as_raw() => {
                self.ready.push_back(Input::Terminate);
            }
            (SignalEvent::Forward(_), None) => {}
        }
    }

    /// Waits until the rest of the output of a worker of which no process is left is copied.
    fn on_worker_end(&mut self, end: ProcessEnd) {
        tracing::info!(code = end.code, "the worker has ended");
        let Some(Worker { epoch, asked, output, .. }) = self.worker.take() else { return };
        let (finished, last_reading) = (self.finished.clone(), self.follower.last_reading());
        tokio::spawn(async move {
            let lines = output.drained().await;
            let last = last_reading.await;
            let has_failed = end.code != 0 && !asked;
            let exit = has_failed.then(|| WorkerExit::new(epoch.unwrap_or(0), end, &lines));
            let _ = finished.send(Finished::Worker { code: end.code, exit, last }).await;
        });
    }

    fn on_finished(&mut self, ended: Finished) {
        match ended {
            Finished::Saved => self.ready.push_back(Input::Saved),
            Finished::Worker { code, exit, last } => {
                self.follower.end(last);
                self.exit = exit.map(Arc::new);
                self.ready.push_back(Input::WorkerExited { code });
            }
        }
    }

    /// Carries out one output. Returns the exit code of an agent that ends.
    fn execute(&mut self, output: Output) -> Option<u8> {
        match output {
            Output::Report { epoch } => {
                self.timer = None;
                let progress = self.follower.before(epoch);
                self.ready.extend(self.transport.report(epoch, self.exit.clone(), progress));
            }
            Output::SetTimer(wait) => self.timer = Some(Instant::now() + jittered(wait)),
            Output::Lift { epoch } => {
                self.timer = None;
                self.lift(epoch);
            }
            Output::Save { epoch } => {
                self.follower.stop();
                self.save(epoch);
            }
            Output::StopWorker { epoch, deprecated } => {
                self.follower.stop();
                if let (Role::Supervisor { grace, .. }, Some(worker)) = (&self.config.role, &mut self.worker) {
                    tracing::info!(epoch, deprecated, grace = grace.as_secs_f64(), "stopping the worker");
                    worker.stop(*grace);
                }
            }
            Output::TerminateWorker => {
                tracing::info!("SIGTERM received; passing it on to the worker");
                self.follower.stop();
                if let Some(worker) = &mut self.worker {
                    worker.terminate();
                }
            }
            Output::Restart { epoch, deprecated } => {
                let code = match &self.config.role {
                    Role::Sidecar { restart_exit_code, .. } => *restart_exit_code,
                    Role::Supervisor { .. } => KILLED,
                };
                tracing::info!(epoch, deprecated, exit_code = code, "restarting the Pod in place");
                return Some(code);
            }
            Output::Exit { code } => {
                tracing::info!(code, "exiting");
                if let Some(exit) = self.exit.as_ref().filter(|_| code != 0) {
                    exit.write_termination_message();
                }
                return Some(code);
            }
        }
        None
    }

    fn lift(&mut self, epoch: Option<i32>) {
        if let Some(epoch) = epoch {
            tracing::info!(name: log::EPOCH_BEGINS, epoch, "barrier lifted");
        } else {
            tracing::info!("barrier lifted; the JobSet does not restart in place");
        }
        match &self.config.role {
            Role::Sidecar { epoch_file, .. } => {
                if let (Some(path), Some(_)) = (epoch_file, epoch)
                    && let Err(error) = epoch_file::write(path, epoch)
                {
                    tracing::warn!(%error, "cannot write the epoch to the file that EPOCH_FILE names");
                }
                if let Some(epoch) = epoch {
                    self.follower.begin(epoch, None);
                }
            }
            Role::Supervisor { command, .. } => {
                termination_log::clear();
                self.exit = None;
                match Worker::start(command, epoch, || self.follower.step_reader()) {
                    Ok(worker) => {
                        if let Some(epoch) = epoch {
                            self.follower.begin(epoch, Some(worker.pid()));
                        }
                        self.worker = Some(worker);
                    }
                    Err(error) => {
                        fail(&error.to_string());
                        self.ready.push_back(Input::WorkerNotStarted { code: error.code() });
                    }
                }
            }
        }
    }

    fn save(&self, epoch: i32) {
        let Role::Sidecar { save: Some(hook), .. } = &self.config.role else { return };
        let (hook, finished) = (hook.clone(), self.finished.clone());
        tokio::spawn(async move {
            hook.run(epoch).await;
            let _ = finished.send(Finished::Saved).await;
        });
    }
}
