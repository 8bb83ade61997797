//! The agent as a sidecar: brings what happened to the state machine, one at a time, and does what it says.

use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::args::Config;
use crate::backoff::jittered;
use crate::connect::connect;
use crate::decide::{Agent, Input, Output};
use crate::error::Error;
use crate::{probe, report, watch as jobset_watch};

/// Inputs that may wait for the state machine.
const QUEUE: usize = 16;

/// Runs until the Pod has to restart or SIGTERM arrives. Gives the exit code.
pub async fn run(config: Config) -> Result<u8, Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;

    let mut agent = Agent::new(config.jobset_uid.clone());
    let (barrier, seen_by_probe) = watch::channel(agent.barrier());
    let port = config.barrier_port.get();
    let listener = probe::listen(port).await.map_err(|source| Error::Listen { port, source })?;
    tokio::spawn(probe::serve(listener, config.barrier_path.clone(), seen_by_probe));

    let client = connect().await?;
    let (sender, mut inputs) = mpsc::channel(QUEUE);
    tokio::spawn(jobset_watch::run(client.clone(), config.namespace.clone(), config.jobset.clone(), sender.clone()));

    let mut shell = Shell { config, client, sender, timer: None };
    loop {
        let timer = shell.timer;
        let input = tokio::select! {
            biased;
            _ = terminate.recv() => Input::Terminate,
            _ = interrupt.recv() => Input::Terminate,
            Some(input) = inputs.recv() => input,
            () = async { tokio::time::sleep_until(timer.unwrap_or_else(Instant::now)).await }, if timer.is_some() => {
                shell.timer = None;
                Input::Timer
            }
        };
        let outputs = agent.step(input);
        barrier.send_if_modified(|shown| {
            let now = agent.barrier();
            let modified = *shown != now;
            *shown = now;
            modified
        });
        for output in outputs {
            if let Some(exit_code) = shell.carry_out(output) {
                return Ok(exit_code);
            }
        }
    }
}

/// What outputs act upon.
struct Shell {
    config: Config,
    client: Client,
    sender: mpsc::Sender<Input>,
    timer: Option<Instant>,
}

impl Shell {
    /// Does one thing. Gives the exit code if the agent is to end.
    fn carry_out(&mut self, output: Output) -> Option<u8> {
        let Config { namespace, pod, jobset, restart_exit_code, .. } = &self.config;
        match output {
            Output::Report { epoch } => {
                tracing::info!(epoch, %namespace, %pod, %jobset, "reporting the epoch");
                let (client, sender) = (self.client.clone(), self.sender.clone());
                let (namespace, pod) = (namespace.clone(), pod.clone());
                tokio::spawn(async move {
                    let answer = report::report(&client, &namespace, &pod, epoch).await;
                    // The receiver is gone only when the agent ends.
                    let _ = sender.send(answer).await;
                });
                None
            }
            Output::SetTimer(wait) => {
                self.timer = Some(Instant::now() + jittered(wait));
                None
            }
            Output::Lift { epoch: Some(epoch) } => {
                tracing::info!(epoch, "barrier lifted");
                None
            }
            Output::Lift { epoch: None } => {
                tracing::info!("barrier lifted: the JobSet does not restart in place");
                None
            }
            Output::Restart { epoch, deprecated } => {
                tracing::info!(epoch, deprecated, exit_code = restart_exit_code.get(), "restarting the Pod in place");
                Some(restart_exit_code.get())
            }
            Output::Exit => {
                tracing::info!("asked to end");
                Some(0)
            }
        }
    }
}
