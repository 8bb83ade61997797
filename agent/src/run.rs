//! Brings what happened to the state machine, one thing at a time, and does what it says.

use kube::Client;
use rustix::process::Signal;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::args::{Config, Role};
use crate::backoff::jittered;
use crate::barrier::Barrier;
use crate::connect::connect;
use crate::decide::{Agent, Input, Output};
use crate::epoch_file::EpochFile;
use crate::error::Error;
use crate::signals::{Signalled, Signals};
use crate::worker::{self, Worker};
use crate::{probe, report, save, watch as jobset_watch};

/// Inputs that may wait for the state machine.
const QUEUE: usize = 16;
/// Exit code of a supervisor whose worker cannot be killed: that of one that was killed itself, which ends the container.
const KILLED: u8 = 137;

/// Runs until the Pod has to restart, the worker is done or SIGTERM arrives. Gives the exit code.
pub async fn run(config: Config) -> Result<u8, Error> {
    let supervises = matches!(config.role, Role::Supervisor { .. });
    let mut signals = Signals::listen(supervises).map_err(Error::Signal)?;
    if supervises {
        worker::adopt_orphans().map_err(Error::Orphans)?;
    }
    let epoch_file = match &config.role {
        Role::Sidecar { epoch_file, .. } => epoch_file.clone(),
        Role::Supervisor { .. } => None,
    };
    let epoch_file = EpochFile::empty(epoch_file).map_err(Error::EpochFile)?;
    if let Role::Sidecar { save: Some(way), .. } = &config.role {
        save::forget(way);
    }
    let mut agent = Agent::new(config.jobset_uid.clone(), config.role.mode());
    let barrier = watch::Sender::new(agent.barrier());
    probe::start(&config.barrier_ports, &config.barrier_paths, &barrier).await?;

    let client = connect().await?;
    let (sender, mut inputs) = mpsc::channel(QUEUE);
    tokio::spawn(jobset_watch::run(client.clone(), config.namespace.clone(), config.jobset.clone(), sender.clone()));

    let mut shell = Shell { config, client, sender, epoch_file, timer: None, worker: None };
    loop {
        let input = tokio::select! {
            biased;
            signalled = signals.next() => match shell.on_signal(signalled) {
                Some(input) => input,
                None => continue,
            },
            () = until(shell.worker.as_ref().and_then(Worker::due)) => {
                if shell.worker.as_mut().is_some_and(Worker::on_time) {
                    tracing::error!("processes of the worker cannot be killed: the container ends, and takes them along");
                    return Ok(KILLED);
                }
                continue;
            }
            Some(input) = inputs.recv() => input,
            () = until(shell.timer) => {
                shell.timer = None;
                Input::Timer
            }
        };
        // What an output brings about at once is an input again.
        let mut next = Some(input);
        while let Some(input) = next.take() {
            let outputs = agent.step(input);
            for output in outputs {
                match shell.carry_out(output) {
                    Outcome::Done => {}
                    Outcome::Then(input) => next = Some(input),
                    Outcome::Exit(code) => return Ok(code),
                }
            }
        }
        // After the worker was told its epoch: whoever sees the barrier lifted may start it.
        show(&barrier, agent.barrier());
    }
}

fn show(barrier: &watch::Sender<Barrier>, now: Barrier) {
    barrier.send_if_modified(|shown| {
        let modified = *shown != now;
        if modified && matches!(now, Barrier::AwaitsOtherJobSet { .. }) {
            tracing::warn!("{now}: the Pod's own was deleted, or JOBSET_UID is wrong");
        }
        *shown = now;
        modified
    });
}

/// For ever, if there is no such time.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// What came of an output.
enum Outcome {
    Done,
    Then(Input),
    Exit(u8),
}

/// What outputs act upon.
struct Shell {
    config: Config,
    client: Client,
    sender: mpsc::Sender<Input>,
    epoch_file: EpochFile,
    timer: Option<Instant>,
    worker: Option<Worker>,
}

impl Shell {
    /// What it means to the state machine, if anything.
    fn on_signal(&mut self, signalled: Signalled) -> Option<Input> {
        match (signalled, &mut self.worker) {
            (Signalled::ChildEnded, Some(worker)) => {
                let code = worker.reap()?;
                self.worker = None;
                tracing::info!(code, "the worker has ended");
                return Some(Input::WorkerExited { code });
            }
            (Signalled::ChildEnded, None) => worker::reap_strangers(),
            (Signalled::Forward(number), Some(worker)) => worker.pass_on(number),
            (Signalled::Terminate, _) => return Some(Input::Terminate),
            // SIGINT at a terminal, when there is nothing else to interrupt.
            (Signalled::Forward(number), None) if number == Signal::INT.as_raw() => return Some(Input::Terminate),
            (Signalled::Forward(_), None) => {}
        }
        None
    }

    /// Does one thing.
    fn carry_out(&mut self, output: Output) -> Outcome {
        match output {
            Output::Report { epoch } => {
                self.timer = None;
                self.report(epoch);
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
                tracing::info!("asked to end: the worker is, too");
                if let Some(worker) = &self.worker {
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
                tracing::info!(code, "ending");
                return Outcome::Exit(code);
            }
        }
        Outcome::Done
    }

    fn report(&self, epoch: i32) {
        let Config { namespace, pod, jobset, .. } = &self.config;
        tracing::info!(epoch, %namespace, %pod, %jobset, "reporting the epoch");
        let (client, sender) = (self.client.clone(), self.sender.clone());
        let (namespace, pod) = (namespace.clone(), pod.clone());
        tokio::spawn(async move {
            let answer = report::report(&client, &namespace, &pod, epoch).await;
            // The receiver is gone only when the agent ends.
            let _ = sender.send(answer).await;
        });
    }

    fn lift(&mut self, epoch: Option<i32>) -> Outcome {
        if let Some(epoch) = epoch {
            tracing::info!(epoch, "barrier lifted");
        } else {
            tracing::info!("barrier lifted: the JobSet does not restart in place");
        }
        match &self.config.role {
            Role::Sidecar { .. } => {
                if let Some(epoch) = epoch
                    && let Err(error) = self.epoch_file.write(epoch)
                {
                    tracing::warn!(%error, "the worker is not told its epoch");
                }
                Outcome::Done
            }
            Role::Supervisor { command, .. } => match Worker::start(command, epoch) {
                Ok(worker) => {
                    self.worker = Some(worker);
                    Outcome::Done
                }
                Err(code) => Outcome::Then(Input::WorkerNotStarted { code }),
            },
        }
    }

    fn save(&self, epoch: i32) {
        let Role::Sidecar { save: Some(way), .. } = &self.config.role else { return };
        let (way, sender) = (way.clone(), self.sender.clone());
        tokio::spawn(async move {
            save::save(&way, epoch).await;
            let _ = sender.send(Input::Saved).await;
        });
    }
}
