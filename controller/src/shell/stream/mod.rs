//! The controller's end of the agent stream: while this replica leads, it keeps a connection to each relay.
//!
//! The loop of the controller owns [`Stream`] beside the engine. One task for each relay signs and writes what the desk says, and
//! reads what its agents do.

mod authority;
mod connection;
mod dial;
mod endpoints;
mod metrics;

use std::collections::{BTreeSet, HashMap};
use std::future;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jobset_api::JobSet;
use jobset_engine::{Desk, DeskOutput, Engine, GroupSnapshot, Now, ReadOutcome, RelayId, RelayMessage, uses_relay};
use jobset_store::{Key, StoredJobSet};
use jobset_stream::tls::Identity;
use kube::{Api, Client};
use prometheus::Registry;
use rustls_pki_types::ServerName;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use super::client::Workers;
use super::retry_log::RetryLog;
use crate::args::Args;
use connection::{Connection, RelayEvent};
use endpoints::Relays;
use metrics::StreamMetrics;

/// Frames of relays that wait to be taken in. A relay waits when there are more.
const FRAMES: usize = 64;
/// The requests of the desk, for the log.
const READS: &str = "reads of JobSets for agents";

/// Something has happened on the stream.
pub(super) enum StreamEvent {
    /// A relay has connected, ended, or told of its agents.
    Relay(RelayEvent),
    /// A read of a JobSet has ended.
    Read(Arc<Key>, kube::Result<Option<GroupSnapshot>>),
}

type Reading = BoxFuture<'static, (Arc<Key>, kube::Result<Option<GroupSnapshot>>)>;

/// The stream of a controller, which is open while it leads.
pub(super) struct Stream {
    desk: Desk,
    workers: Workers,
    relays: Relays,
    server: ServerName<'static>,
    identity: watch::Receiver<Arc<Identity>>,
    open: Option<Open>,
    reads: FuturesUnordered<Reading>,
    /// The memory that the specification of a JobSet may take, in bytes.
    most_memory: usize,
    /// The JobSets whose Pods can speak with a relay.
    users: BTreeSet<Key>,
    /// Whether they have changed since [`Stream::namespaces`] was set.
    users_changed: bool,
    /// Their namespaces, while the stream is open.
    namespaces: watch::Sender<BTreeSet<String>>,
    metrics: StreamMetrics,
    retry_log: RetryLog,
}

/// What exists while this replica leads.
struct Open {
    events: mpsc::Receiver<RelayEvent>,
    connections: HashMap<RelayId, Connection>,
    /// Ends the tasks.
    _tasks: DropGuard,
}

impl Stream {
    /// The stream, if its feature gate is on.
    ///
    /// # Errors
    /// The certificates cannot be read, or the name of the relays' Service is no DNS name.
    pub(super) fn of(args: &Args, workers: &Workers, registry: &Registry) -> anyhow::Result<Option<Self>> {
        if !args.feature_gates.agent_stream {
            return Ok(None);
        }
        let folder = args.stream.stream_cert_dir.clone();
        let identity = Identity::follow(folder).context(
            "the feature gate AgentStream needs certificates (--stream-cert-dir): install them, or switch it off",
        )?;
        let namespace = args.election.leader_elect_resource_namespace.as_deref().unwrap_or("default");
        let host = format!("{}.{namespace}.svc", args.stream.relay_service);
        let server = ServerName::try_from(host).context("--relay-service is no DNS name")?;
        Ok(Some(Self {
            desk: Desk::new(args.namespace.clone()),
            workers: workers.clone(),
            relays: Relays::of(&args.stream, namespace),
            server,
            identity,
            open: None,
            reads: FuturesUnordered::new(),
            most_memory: args.settings().limits.most_memory(),
            users: BTreeSet::new(),
            users_changed: false,
            namespaces: watch::Sender::default(),
            metrics: StreamMetrics::register(registry)?,
            retry_log: RetryLog::default(),
        }))
    }

    /// Opens the stream when this replica begins to work, and closes it when it does not work any more.
    pub(super) fn work(&mut self, works: bool) {
        if works == self.open.is_some() {
            return;
        }
        self.open = works.then(|| self.start());
        if !works {
            self.desk.clear();
            self.reads.clear();
            self.measure();
        }
    }

    fn start(&self) -> Open {
        let (sender, events) = mpsc::channel(FRAMES);
        let stop = CancellationToken::new();
        let dialer = dial::Dialer::new(self.identity.clone(), self.server.clone(), sender);
        let addresses = self.relays.follow(self.workers.urgent.clone(), &stop);
        tokio::spawn(stop.clone().run_until_cancelled_owned(dialer.run(addresses)));
        let keeper = authority::Keeper::new(self.workers.bulk.clone(), self.identity.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(keeper.run(self.namespaces.subscribe())));
        Open { events, connections: HashMap::new(), _tasks: stop.drop_guard() }
    }

    /// When [`Stream::turn`] has something to do although nothing happens.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.desk.next_due()
    }

    /// What happens next.
    pub(super) async fn next(&mut self) -> StreamEvent {
        let Some(open) = &mut self.open else { return future::pending().await };
        tokio::select! {
            Some(event) = open.events.recv() => StreamEvent::Relay(event),
            Some((key, answer)) = self.reads.next() => StreamEvent::Read(key, answer),
            else => future::pending().await,
        }
    }

    /// Takes an event in.
    pub(super) fn handle(&mut self, event: StreamEvent, engine: &mut Engine) {
        let now = Now::read();
        let outputs = match event {
            StreamEvent::Relay(RelayEvent::Connected(relay, connection)) => {
                let Some(open) = &mut self.open else { return };
                open.connections.insert(relay, connection);
                self.desk.relay_connected(relay, now)
            }
            StreamEvent::Relay(RelayEvent::Agents(relay, events)) => self.desk.agent_events(relay, events, now),
            StreamEvent::Relay(RelayEvent::Gone(relay)) => self.end(relay),
            StreamEvent::Read(key, answer) => {
                let outcome = self.outcome(answer);
                self.desk.read(&key, outcome, now)
            }
        };
        self.carry_out(outputs, engine, now);
        self.turn(engine);
        self.measure();
    }

    /// Does what is due.
    pub(super) fn turn(&mut self, engine: &mut Engine) {
        if self.open.is_some() && std::mem::take(&mut self.users_changed) {
            self.publish();
        }
        let now = Now::read();
        let outputs = self.desk.next(now);
        self.carry_out(outputs, engine, now);
    }

    /// A JobSet was observed, or its status was written with success.
    pub(super) fn stored(&mut self, jobset: &JobSet, engine: &mut Engine) {
        // It has no agents, or its specification was not read: they keep what they were told.
        if jobset.spec.replicated_jobs.is_empty() {
            return;
        }
        let (key, now) = (Key::of(jobset), Now::read());
        self.users_changed |= if uses_relay(jobset) { self.users.insert(key.clone()) } else { self.users.remove(&key) };
        let outputs = self.desk.stored(&key, GroupSnapshot::of(jobset), now);
        self.carry_out(outputs, engine, now);
    }

    /// A JobSet is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.users_changed |= self.users.remove(key);
    }

    /// Tells the keeper of the CA which namespaces need it.
    fn publish(&self) {
        let namespaces: BTreeSet<String> = self.users.iter().map(|key| key.namespace.clone()).collect();
        self.namespaces.send_if_modified(|present| {
            let is_new = *present != namespaces;
            *present = namespaces;
            is_new
        });
    }

    fn carry_out(&mut self, outputs: Vec<DeskOutput>, engine: &mut Engine, now: Now) {
        let mut outputs = std::collections::VecDeque::from(outputs);
        while let Some(output) = outputs.pop_front() {
            match output {
                DeskOutput::Report { key, report } => {
                    self.metrics.reports.inc();
                    engine.apply_report(&key, report, now.instant);
                }
                DeskOutput::AgentGone { key, pod_uid } => engine.agent_gone(&key, &pod_uid),
                DeskOutput::Read(key) => {
                    self.metrics.reads.inc();
                    self.reads.push(read(self.workers.urgent.clone(), key, self.most_memory));
                }
                DeskOutput::Send(relay, message) => outputs.extend(self.send(relay, message)),
            }
        }
    }

    /// Passes a message to the task of a relay. A relay that does not read for so long that its queue is full is disconnected.
    fn send(&mut self, relay: RelayId, message: RelayMessage) -> Vec<DeskOutput> {
        match &message {
            RelayMessage::Answers { agents, .. } => self.metrics.answers.inc_by(agents.len().try_into().unwrap_or(0)),
            RelayMessage::Group { .. } => self.metrics.broadcasts.inc(),
            RelayMessage::Beat(_) => {}
        }
        let connection = self.open.as_ref().and_then(|open| open.connections.get(&relay));
        if connection.is_none_or(|connection| connection.send(message)) {
            return Vec::new();
        }
        warn!(relay, "a relay does not read what it is sent, and is disconnected");
        self.end(relay)
    }

    fn outcome(&mut self, answer: kube::Result<Option<GroupSnapshot>>) -> ReadOutcome {
        match answer {
            Ok(jobset) => {
                self.retry_log.succeeded(READS);
                jobset.map_or(ReadOutcome::NotFound, ReadOutcome::Found)
            }
            Err(error) => {
                self.retry_log.failed(READS, &error);
                ReadOutcome::Failed
            }
        }
    }

    fn end(&mut self, relay: RelayId) -> Vec<DeskOutput> {
        if let Some(open) = &mut self.open {
            open.connections.remove(&relay);
        }
        self.desk.relay_gone(relay)
    }

    fn measure(&self) {
        self.metrics.connected(self.desk.relays(), self.desk.agents());
    }
}

/// Reads a JobSet. Without a resourceVersion, the API server reads it from etcd, and so sees each write that has succeeded before.
fn read(client: Client, key: Arc<Key>, most_memory: usize) -> Reading {
    Box::pin(async move {
        let answer = Api::<StoredJobSet>::namespaced(client, &key.namespace).get_opt(&key.name).await;
        // One that the controller would not read has no agents that it serves.
        let read = |stored: StoredJobSet| stored.whole(most_memory);
        (key, answer.map(|stored| stored.and_then(read).as_ref().map(GroupSnapshot::of)))
    })
}
