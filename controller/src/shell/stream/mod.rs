//! The controller's end of the agent stream: while this replica leads, it keeps a connection to each relay.
//!
//! The engine decides what is said, and hears what agents do. One task for each relay signs and writes, and reads.

mod authority;
mod connection;
mod dial;
mod endpoints;
mod metrics;

use std::collections::{BTreeSet, HashMap};
use std::future;
use std::sync::Arc;

use anyhow::Context as _;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jobset_engine::{GroupSnapshot, ReadOutcome, RelayId, StreamCounts, StreamEvent, StreamWork};
use jobset_store::{Key, StoredJobSet};
use jobset_stream::signature::SharedSignature;
use jobset_stream::tls::Identity;
use kube::{Api, Client};
use prometheus::Registry;
use rustls_pki_types::ServerName;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{info, warn};

use super::client::Workers;
use super::retry_log::RetryLog;
use crate::args::Args;
use connection::{Connection, Heard, Outgoing};
use endpoints::Relays;
use metrics::StreamMetrics;

/// Frames of relays that wait to be taken in. A relay waits when there are more.
const FRAMES: usize = 64;
const READS: &str = "reads of JobSets for agents";

type Reading = BoxFuture<'static, (Arc<Key>, kube::Result<Option<GroupSnapshot>>)>;

/// The sockets of the stream, which is open while this replica works.
pub(super) struct Stream {
    /// `None` without the feature gate, or without certificates: the stream never opens.
    setup: Option<Setup>,
    open: Option<Open>,
    workers: Workers,
    reads: FuturesUnordered<Reading>,
    /// The memory that the specification of a JobSet may take, in bytes.
    most_memory: usize,
    /// The namespaces that need the CA of the relays.
    namespaces: watch::Sender<BTreeSet<String>>,
    retry_log: RetryLog,
}

/// Where the relays are, and who they and the controller are.
struct Setup {
    relays: Relays,
    server: ServerName<'static>,
    identity: watch::Receiver<Arc<Identity>>,
    metrics: StreamMetrics,
}

impl Setup {
    /// What the feature gate needs. A controller that nobody has given certificates has none of it, and says so: the gate is on by
    /// default, and a controller installed by hand must start.
    fn of(args: &Args, registry: &Registry) -> anyhow::Result<Option<Self>> {
        if !args.feature_gates.agent_stream {
            return Ok(None);
        }
        let Some(certificates) = args.stream.certificates() else {
            info!("the agent stream is off: there are no certificates for relays (--stream-cert-dir)");
            return Ok(None);
        };
        let identity = Identity::follow(certificates).context(
            "the feature gate AgentStream needs certificates (--stream-cert-dir): install them, or switch it off",
        )?;
        let namespace = args.election.leader_elect_resource_namespace.as_deref().unwrap_or("default");
        let host = format!("{}.{namespace}.svc", args.stream.relay_service);
        let server = ServerName::try_from(host).context("--relay-service is no DNS name")?;
        let relays = Relays::of(&args.stream, namespace);
        Ok(Some(Self { relays, server, identity, metrics: StreamMetrics::register(registry)? }))
    }

    fn open(&self, workers: &Workers, namespaces: watch::Receiver<BTreeSet<String>>) -> Open {
        let (sender, events) = mpsc::channel(FRAMES);
        let stop = CancellationToken::new();
        let dialer = dial::Dialer::new(self.identity.clone(), self.server.clone(), sender);
        let addresses = self.relays.follow(workers.urgent.clone(), &stop);
        tokio::spawn(stop.clone().run_until_cancelled_owned(dialer.run(addresses)));
        let keeper = authority::Keeper::new(workers.bulk.clone(), self.identity.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(keeper.run(namespaces)));
        Open { events, connections: HashMap::new(), _tasks: stop.drop_guard() }
    }
}

/// What exists while this replica works.
struct Open {
    events: mpsc::Receiver<Heard>,
    connections: HashMap<RelayId, Connection>,
    /// Ends the tasks.
    _tasks: DropGuard,
}

impl Open {
    fn take_in(&mut self, (event, connection): Heard) -> StreamEvent {
        match (&event, connection) {
            (StreamEvent::Connected(relay), Some(connection)) => {
                self.connections.insert(*relay, connection);
            }
            (StreamEvent::Gone(relay), _) => {
                self.connections.remove(relay);
            }
            _ => {}
        }
        event
    }

    /// Passes a message to the task of a relay. A relay that does not read for so long that its queue is full is disconnected.
    fn send(&mut self, relay: RelayId, message: Outgoing) {
        if self.connections.get(&relay).is_some_and(|connection| !connection.send(message)) {
            warn!(relay, "a relay does not read what it is sent, and is disconnected");
            self.connections.remove(&relay);
        }
    }
}

impl Stream {
    /// The stream, which opens if its feature gate is on and there are certificates for relays.
    ///
    /// # Errors
    /// The certificates cannot be read, or the name of the relays' Service is no DNS name.
    pub(super) fn of(args: &Args, workers: &Workers, registry: &Registry) -> anyhow::Result<Self> {
        Ok(Self {
            setup: Setup::of(args, registry)?,
            open: None,
            workers: workers.clone(),
            reads: FuturesUnordered::new(),
            most_memory: args.settings().limits.most_memory(),
            namespaces: watch::Sender::default(),
            retry_log: RetryLog::default(),
        })
    }

    /// Opens the stream when this replica begins to work, and closes it when it does not work any more.
    pub(super) fn work(&mut self, works: bool) {
        if works != self.open.is_some() {
            let setup = self.setup.as_ref().filter(|_| works);
            self.open = setup.map(|setup| setup.open(&self.workers, self.namespaces.subscribe()));
            self.reads.clear();
        }
    }

    pub(super) async fn next(&mut self) -> StreamEvent {
        let Some(open) = &mut self.open else { return future::pending().await };
        tokio::select! {
            Some(heard) = open.events.recv() => open.take_in(heard),
            Some((key, answer)) = self.reads.next() => StreamEvent::Read(key, outcome(&mut self.retry_log, answer)),
            else => future::pending().await,
        }
    }

    /// Sends and reads what the engine asks for.
    pub(super) fn carry_out(&mut self, work: StreamWork) {
        let StreamWork { messages, reads, namespaces } = work;
        if let Some(open) = &mut self.open {
            let (mut time, mut signature) = (None, SharedSignature::default());
            for (relay, message) in messages {
                // Each statement has another time.
                if time.replace(message.time()) != Some(message.time()) {
                    signature = SharedSignature::default();
                }
                open.send(relay, (message, signature.clone()));
            }
        }
        self.reads.extend(reads.into_iter().map(|key| read(self.workers.urgent.clone(), key, self.most_memory)));
        if let Some(namespaces) = namespaces {
            self.namespaces.send_if_modified(|present| std::mem::replace(present, namespaces) != *present);
        }
    }

    pub(super) fn measure(&self, counts: StreamCounts) {
        self.setup.iter().for_each(|setup| setup.metrics.set(counts));
    }
}

fn outcome(retry_log: &mut RetryLog, answer: kube::Result<Option<GroupSnapshot>>) -> ReadOutcome {
    match answer {
        Ok(jobset) => {
            retry_log.succeeded(READS);
            jobset.map_or(ReadOutcome::NotFound, ReadOutcome::Found)
        }
        Err(error) => {
            retry_log.failed(READS, &error);
            ReadOutcome::Failed
        }
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
