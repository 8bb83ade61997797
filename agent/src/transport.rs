//! Carries out what [`Channels`] decides: the watch, the stream, the writes of the annotation and their delays.

use std::sync::Arc;
use std::time::Duration;

use jobset_protocol::agent::{annotation_delays, prompt_delay};
use jobset_stream::message::Report;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::annotation::Annotation;
use crate::args::{Names, Relay};
use crate::channels::{ChannelInput, ChannelOutput, Channels};
use crate::decide::Input;
use crate::follow::ProgressUpdate;
use crate::group::GroupFacts;
use crate::report::Extras;
use crate::stream::{self, JobSetName, Present, Progress};
use crate::worker_exit::WorkerExit;
use crate::{report, watch as jobset_watch};

/// How long an agent that ends waits for its last write.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);
const INPUT_QUEUE: usize = 16;

/// The channels of one agent. Their tasks end when this is dropped.
pub struct Transport {
    channels: Channels,
    client: Client,
    names: Names,
    /// When the agent started.
    start: Arc<Annotation>,
    /// How the worker of the epoch before the newest report failed.
    exit: Option<Arc<WorkerExit>>,
    /// How far workers came.
    told: Option<Arc<Annotation>>,
    group: Arc<GroupFacts>,
    watch: JoinSet<()>,
    watched: (mpsc::Sender<Input>, mpsc::Receiver<Input>),
    inputs: (mpsc::Sender<ChannelInput>, mpsc::Receiver<ChannelInput>),
    /// What the stream tells the relay; `None` without a stream.
    present: Option<watch::Sender<Present>>,
    stream: JoinSet<()>,
    progress: watch::Receiver<Progress>,
    /// Since when the agent waits for the stream.
    awaited_since: Option<Instant>,
    /// When the stream came as far as it has come.
    progressed_at: Instant,
    stream_deadline: Option<Instant>,
    write_due: Option<Instant>,
}

impl Transport {
    /// Starts the channels of an agent: the watch, or the stream if there are relays. An agent that does not know the UID of its
    /// JobSet does not use them: a relay could tell it of another JobSet.
    pub fn start(
        client: Client,
        names: Names,
        jobset_uid: Option<String>,
        start: Arc<Annotation>,
        relay: Option<Relay>,
        group: Arc<GroupFacts>,
    ) -> Self {
        if relay.is_some() && jobset_uid.is_none() {
            tracing::warn!("the relays are not used: they need the UID of the JobSet; set JOBSET_UID");
        }
        let stream = relay.zip(jobset_uid);
        let (channels, first) = Channels::new(stream.is_some());
        let (progress, progressed) = watch::channel(Progress::default());
        let mut transport = Self {
            channels,
            client,
            names,
            start,
            exit: None,
            told: None,
            group,
            watch: JoinSet::new(),
            watched: mpsc::channel(INPUT_QUEUE),
            inputs: mpsc::channel(INPUT_QUEUE),
            present: None,
            stream: JoinSet::new(),
            progress: progressed,
            awaited_since: None,
            progressed_at: Instant::now(),
            stream_deadline: None,
            write_due: None,
        };
        if let Some((relay, uid)) = stream {
            let (sender, present) = watch::channel(Present::default());
            let jobset = JobSetName { name: transport.names.jobset.clone(), uid };
            let inputs = transport.inputs.0.clone();
            let group = Arc::clone(&transport.group);
            transport.stream.spawn(stream::run(relay, jobset, present, inputs, progress, group));
            transport.present = Some(sender);
        }
        transport.execute(first);
        transport
    }

    /// Waits for the next event on the channels. Dropping the future loses nothing.
    pub async fn next(&mut self) -> ChannelInput {
        loop {
            tokio::select! {
                biased;
                Some(input) = self.inputs.1.recv() => return input,
                Some(input) = self.watched.1.recv() => return ChannelInput::Watched(input),
                Ok(()) = self.progress.changed() => {
                    self.progressed_at = Instant::now();
                    self.set_stream_deadline();
                }
                () = until(self.stream_deadline) => {
                    (self.stream_deadline, self.awaited_since) = (None, None);
                    return ChannelInput::StreamTimeout;
                }
                () = until(self.write_due) => {
                    self.write_due = None;
                    return ChannelInput::WriteDue;
                }
            }
        }
    }

    /// Takes an event. Returns what the state machine of the agent has to know.
    pub fn on(&mut self, input: ChannelInput) -> Vec<Input> {
        let outputs = self.channels.step(input);
        outputs.into_iter().filter_map(|output| self.execute(output)).collect()
    }

    /// Reports an epoch, with how the worker of the epoch before failed and how far it came. Returns what the state machine of the agent
    /// has to know.
    pub fn report(&mut self, epoch: i32, exit: Option<Arc<WorkerExit>>, progress: Option<String>) -> Vec<Input> {
        let Names { namespace, pod, jobset } = &self.names;
        tracing::info!(epoch, %namespace, %pod, %jobset, "reporting the epoch");
        self.exit = exit;
        self.tell(progress.clone());
        let exit = self.exit.as_ref().and_then(|exit| exit.annotation.admitted()).map(str::to_owned);
        let report = Report { epoch, exit, started: Some(self.start.value().to_owned()), progress };
        self.prepare_hello(|present| present.report = Some(report.clone()));
        self.on(ChannelInput::Report(report))
    }

    /// Reports the progress of the worker in the present epoch. Returns what the state machine of the agent has to know.
    pub fn report_progress(&mut self, update: ProgressUpdate) -> Vec<Input> {
        let ProgressUpdate { text, is_urgent } = update;
        self.tell(Some(text.clone()));
        self.prepare_hello(|present| {
            if let Some(report) = &mut present.report {
                report.progress = Some(text.clone());
            }
        });
        self.on(ChannelInput::Progress { text, is_urgent })
    }

    /// Sets the annotation about progress. A policy that has rejected one rejects all for now: it is of the release before.
    fn tell(&mut self, progress: Option<String>) {
        if self.told.as_ref().is_none_or(|told| told.may_be_replaced()) {
            self.told = progress.map(|text| Arc::new(Annotation::new(text)));
        }
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
                if self.present.is_some() {
                    let progress = *self.progress.borrow();
                    tracing::info!(?progress, "the stream is not there in time; relying on the API server until it is");
                }
                self.watch = JoinSet::new();
                let (inputs, group) = (self.watched.0.clone(), Arc::clone(&self.group));
                self.watch.spawn(jobset_watch::run(self.client.clone(), self.names.clone(), inputs, group));
                let fell_back = self.channels.has_fallen_back();
                self.prepare_hello(|present| present.fell_back = fell_back);
            }
            ChannelOutput::StopWatch => {
                self.watch.abort_all();
                let fell_back = self.channels.has_fallen_back();
                self.prepare_hello(|present| present.fell_back = fell_back);
            }
            ChannelOutput::Send(report) => {
                if let Some(present) = &self.present {
                    present.send_modify(|present| present.report = Some(report));
                }
            }
            ChannelOutput::Write { epoch } => {
                let (answer, sender) = (self.write(epoch), self.inputs.0.clone());
                tokio::spawn(async move {
                    // The receiver is closed only when the agent ends.
                    let _ = sender.send(ChannelInput::Written(answer.await)).await;
                });
            }
            ChannelOutput::WriteLater { is_prompt } => {
                let pods = self.group.pods();
                let delays = if is_prompt { Duration::ZERO..=prompt_delay(pods) } else { annotation_delays(pods) };
                let (least, most) = delays.into_inner();
                self.write_due = Some(Instant::now() + least + most.saturating_sub(least).mul_f64(fastrand::f64()));
            }
        }
        None
    }

    fn set_stream_deadline(&mut self) {
        let (progress, at) = (*self.progress.borrow_and_update(), self.progressed_at);
        self.stream_deadline = self.awaited_since.map(|since| progress.deadline(since, at));
    }

    /// Sets what the hello of a later connection says. The present connection sends nothing.
    fn prepare_hello(&self, set: impl FnOnce(&mut Present)) {
        if let Some(present) = &self.present {
            present.send_if_modified(|present| {
                set(present);
                false
            });
        }
    }

    /// Writes the annotation that the stream has put off, for an agent that ends: nobody else writes it later.
    pub async fn settle(&self) {
        let Some(epoch) = self.channels.unwritten().filter(|_| self.present.is_some()) else { return };
        // A write that fails has been logged, and one that takes longer does not keep the Pod.
        let _ = timeout(SETTLE_TIMEOUT, self.write(epoch)).await;
    }

    /// Writes the annotation once.
    fn write(&self, epoch: i32) -> impl Future<Output = Input> + use<> {
        let (client, names) = (self.client.clone(), self.names.clone());
        let extras = Extras {
            start: Some(Arc::clone(&self.start)),
            exit: self.exit.as_ref().map(|exit| Arc::clone(&exit.annotation)),
            progress: self.told.clone(),
        };
        async move { report::report(&client, &names, epoch, &extras).await }
    }
}

/// Waits until this time; forever if it is `None`.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
