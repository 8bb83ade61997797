//! Carries out what [`Channels`] decides: the watch, the stream, the writes of the annotation and their delays.

use std::sync::Arc;
use std::time::Duration;

use jobset_protocol::agent::annotation_delays;
use jobset_stream::SILENCE;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::args::Relay;
use crate::channels::{CONNECTING_TIMEOUT, ChannelInput, ChannelOutput, Channels, STREAM_TIMEOUT};
use crate::decide::Input;
use crate::start::AgentStart;
use crate::stream::{self, Present, Progress};
use crate::worker_exit::WorkerExit;
use crate::{report, watch as jobset_watch};

/// How long an agent that ends waits for its last write.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Capacity of the queues of inputs.
const INPUT_QUEUE: usize = 16;

/// The Pod of an agent and its JobSet.
#[derive(Clone, Debug)]
pub struct Names {
    /// Namespace of both.
    pub namespace: String,
    /// Name of the Pod.
    pub pod: String,
    /// Name of the JobSet.
    pub jobset: String,
}

/// The channels of one agent. They end when this is dropped.
pub struct Transport {
    channels: Channels,
    client: Client,
    names: Names,
    /// When the agent started.
    start: Arc<AgentStart>,
    /// How the worker of the epoch before the newest report failed.
    exit: Option<Arc<WorkerExit>>,
    watch: Option<AbortHandle>,
    watched: (mpsc::Sender<Input>, mpsc::Receiver<Input>),
    inputs: (mpsc::Sender<ChannelInput>, mpsc::Receiver<ChannelInput>),
    /// What the stream tells the relay; `None` without a stream.
    present: Option<watch::Sender<Present>>,
    stream: Option<AbortHandle>,
    progress: watch::Receiver<Progress>,
    /// Since when the agent waits for the stream.
    awaited_since: Option<Instant>,
    stream_deadline: Option<Instant>,
    write_due: Option<Instant>,
}

impl Transport {
    /// Starts the channels of an agent: the watch, or the stream if there are relays.
    pub fn start(client: Client, names: Names, start: Arc<AgentStart>, relay: Option<Relay>) -> Self {
        let (channels, first) = Channels::new(relay.is_some());
        let (progress, progressed) = watch::channel(Progress::default());
        let mut transport = Self {
            channels,
            client,
            names,
            start,
            exit: None,
            watch: None,
            watched: mpsc::channel(INPUT_QUEUE),
            inputs: mpsc::channel(INPUT_QUEUE),
            present: None,
            stream: None,
            progress: progressed,
            awaited_since: None,
            stream_deadline: None,
            write_due: None,
        };
        if let Some(relay) = relay {
            let (sender, present) = watch::channel(Present::default());
            let inputs = transport.inputs.0.clone();
            let task = tokio::spawn(stream::run(relay, transport.names.jobset.clone(), present, inputs, progress));
            (transport.present, transport.stream) = (Some(sender), Some(task.abort_handle()));
        }
        transport.execute(first);
        transport
    }

    /// Waits for the next event on the channels. Dropping the future loses nothing.
    pub async fn next(&mut self) -> ChannelInput {
        let input = loop {
            tokio::select! {
                biased;
                Some(input) = self.inputs.1.recv() => break input,
                Some(input) = self.watched.1.recv() => break ChannelInput::Watched(input),
                Ok(()) = self.progress.changed() => self.set_stream_deadline(),
                () = until(self.stream_deadline) => break ChannelInput::StreamTimeout,
                () = until(self.write_due) => break ChannelInput::WriteDue,
            }
        };
        match input {
            ChannelInput::StreamTimeout => (self.stream_deadline, self.awaited_since) = (None, None),
            ChannelInput::WriteDue => self.write_due = None,
            _ => {}
        }
        input
    }

    /// Takes an event. Returns what the state machine of the agent has to know.
    pub fn on(&mut self, input: ChannelInput) -> Vec<Input> {
        let outputs = self.channels.step(input);
        outputs.into_iter().filter_map(|output| self.execute(output)).collect()
    }

    /// Reports an epoch, with how the worker of the epoch before failed. Returns what the state machine of the agent has to know.
    pub fn report(&mut self, epoch: i32, exit: Option<Arc<WorkerExit>>) -> Vec<Input> {
        let Names { namespace, pod, jobset } = &self.names;
        tracing::info!(epoch, %namespace, %pod, %jobset, "reporting the epoch");
        self.exit = exit;
        let exit = self.exit.as_deref().and_then(WorkerExit::annotation);
        let report = jobset_stream::message::Report { epoch, exit, started: Some(self.start.text().to_owned()) };
        if let Some(present) = &self.present {
            // A relay that connects later gets it with the hello. ChannelOutput::Send tells the present one.
            present.send_if_modified(|present| {
                present.report = Some(report);
                false
            });
        }
        self.on(ChannelInput::Report { epoch })
    }

    /// Carries out one output. Returns what the state machine of the agent has to know.
    fn execute(&mut self, output: ChannelOutput) -> Option<Input> {
        match output {
            ChannelOutput::Tell(input) => return Some(input),
            ChannelOutput::AwaitStream => {
                self.awaited_since = Some(Instant::now());
                self.set_stream_deadline();
            }
            ChannelOutput::Watch => {
                let Names { namespace, jobset, .. } = self.names.clone();
                let watch = jobset_watch::run(self.client.clone(), namespace, jobset, self.watched.0.clone());
                self.watch = Some(tokio::spawn(watch).abort_handle());
                self.tell_fallback();
            }
            ChannelOutput::StopWatch => {
                if let Some(watch) = self.watch.take() {
                    watch.abort();
                }
                self.tell_fallback();
            }
            ChannelOutput::Send { .. } => {
                if let Some(present) = &self.present {
                    present.send_modify(|_| {});
                }
            }
            ChannelOutput::Write { epoch } => self.write(epoch),
            ChannelOutput::WriteLater { pods } => {
                let (least, most) = annotation_delays(pods).into_inner();
                self.write_due = Some(Instant::now() + least + most.saturating_sub(least).mul_f64(fastrand::f64()));
            }
        }
        None
    }

    /// A relay that is there may be silent as long as one that has answered, unless it says that nobody leads.
    fn set_stream_deadline(&mut self) {
        let progress = *self.progress.borrow_and_update();
        self.stream_deadline = self.awaited_since.map(|since| match progress {
            Progress::Connecting => since + CONNECTING_TIMEOUT,
            Progress::Unconnected => since + STREAM_TIMEOUT,
            Progress::Connected => since + SILENCE,
            Progress::Leaderless => Instant::now(),
        });
    }

    fn tell_fallback(&self) {
        if let Some(present) = &self.present {
            let fell_back = self.channels.has_fallen_back();
            present.send_if_modified(|present| {
                present.fell_back = fell_back;
                false
            });
        }
    }

    /// Writes the annotation that the stream has put off, for an agent that ends: nobody else writes it later.
    pub async fn settle(&self) {
        let Some(epoch) = self.channels.unwritten().filter(|_| self.present.is_some()) else { return };
        let Names { namespace, pod, .. } = &self.names;
        let report = report::report(&self.client, namespace, pod, epoch, Some(&self.start), self.exit.as_deref());
        // A write that fails has been logged, and one that takes longer does not keep the Pod.
        let _ = timeout(SETTLE_TIMEOUT, report).await;
    }

    fn write(&self, epoch: i32) {
        let (client, sender) = (self.client.clone(), self.inputs.0.clone());
        let (start, exit) = (Arc::clone(&self.start), self.exit.clone());
        let Names { namespace, pod, .. } = self.names.clone();
        tokio::spawn(async move {
            let answer = report::report(&client, &namespace, &pod, epoch, Some(&start), exit.as_deref()).await;
            // The receiver is closed only when the agent ends.
            let _ = sender.send(ChannelInput::Written(answer)).await;
        });
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        for task in self.watch.iter().chain(&self.stream) {
            task.abort();
        }
    }
}

/// Waits until this time; forever if it is `None`.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
