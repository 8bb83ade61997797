//! What connects a simulated agent with its controller: requests to the API server, or the agent stream.
//!
//! **Seats.** The agents have the identity of an administrator, who is exempt from priority and fairness. Thousands of
//! concurrent requests on two cores would take longer than agents wait for an answer; each would be sent again, until no
//! answer is in time. So the agents wait for a seat, as the API server would let them wait: for a report until it is
//! answered, for a watch until it has shown the JobSet. Their own time limits begin with the seat. What agents of the
//! stream request beside it takes the same seats, inside their time limits.
//!
//! New connections of the stream wait for seats of their own, until the leader has answered: an agent in a Pod has a CPU
//! for its handshake, and thousands in one process would run out of time because they wait for each other.

use std::path::PathBuf;
use std::sync::Arc;

use jobset_agent::annotation::Annotation;
use jobset_agent::args::{Names, Relay};
use jobset_agent::decide::Input;
use jobset_agent::transport::Transport;
use jobset_agent::{report, watch};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::go_dialect;
use super::jobset::{NAME, NAMESPACE};
use super::relays::StreamSetup;
use crate::connections::Connections;

/// Concurrent requests of agents: the share of workloads (100 of 245) in the 600 requests that an API server handles at
/// once by default.
pub(super) const SEATS: usize = 245;
/// Inputs that may wait for a state machine, as in the agent itself.
const QUEUE: usize = 16;

/// Whose annotation and status the agents use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// This project's.
    Own,
    /// The Go JobSet's.
    Go,
}

/// The ways of all agents.
pub(super) enum Links {
    /// Watches and patches.
    Requests { connections: Connections, seats: Arc<Semaphore>, dialect: Dialect },
    /// The stream; the folder of each agent has its token.
    Stream { connections: Connections, setup: Box<StreamSetup>, folders: Vec<PathBuf>, seats: Arc<Semaphore> },
}

impl Links {
    /// Watches and patches over these connections.
    pub(super) fn requests(connections: Connections, dialect: Dialect) -> Self {
        Self::Requests { connections, seats: Arc::new(Semaphore::new(SEATS)), dialect }
    }

    /// The stream over these relays, to which so many connect at once; what agents request beside it goes over these connections.
    pub(super) fn stream(
        connections: Connections,
        setup: StreamSetup,
        folders: Vec<PathBuf>,
        connecting: usize,
    ) -> Self {
        let (setup, seats) = (Box::new(setup), Arc::new(Semaphore::new(connecting)));
        Self::Stream { connections, setup, folders, seats }
    }

    /// Connects the agent of this Pod of the JobSet with this UID.
    pub(super) async fn open(&self, agent: usize, pod: &str, jobset_uid: &str) -> Link {
        match self {
            Self::Requests { connections, seats, dialect } => {
                let requests = Requests { client: connections.of(agent), seats: Arc::clone(seats), dialect: *dialect };
                Link::Watch(requests.watch(pod).await)
            }
            Self::Stream { connections, setup, folders, seats } => {
                let seat = Arc::clone(seats).acquire_owned().await.ok();
                let relay: Relay = setup.relay(agent, folders[agent].clone());
                let start = Arc::new(Annotation::started(Timestamp::now()));
                let (client, uid) = (connections.of(agent), Some(jobset_uid.to_owned()));
                Link::Stream(
                    Box::new(Transport::start(client, names(pod), uid, start, Some(relay), Arc::default())),
                    seat,
                )
            }
        }
    }
}

fn names(pod: &str) -> Names {
    Names { namespace: NAMESPACE.into(), pod: pod.into(), jobset: NAME.into() }
}

struct Requests {
    client: Client,
    seats: Arc<Semaphore>,
    dialect: Dialect,
}

impl Requests {
    async fn watch(self, pod: &str) -> WatchLink {
        // Nobody closes the semaphore.
        let seat = Arc::clone(&self.seats).acquire_owned().await.ok();
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (client, inputs) = (self.client.clone(), sender.clone());
        let watch = match self.dialect {
            Dialect::Own => tokio::spawn(watch::run(client, names(pod), inputs, Arc::default())),
            Dialect::Go => tokio::spawn(go_dialect::watch(client, inputs)),
        };
        let watch = AbortOnDropHandle::new(watch);
        WatchLink { requests: self, names: names(pod), sender, receiver, seat, _watch: watch }
    }
}

/// The way of one agent. Its watch or its connection ends when this is dropped.
pub(super) enum Link {
    Watch(WatchLink),
    /// With the seat that is held until the first event: an answer, or that the agent waits no longer.
    Stream(Box<Transport>, Option<OwnedSemaphorePermit>),
}

impl Link {
    /// The next inputs of the state machine, if the event was one. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Vec<Input> {
        match self {
            Self::Watch(link) => link.next().await,
            Self::Stream(transport, seat) => {
                let event = transport.next().await;
                *seat = None;
                transport.on(event)
            }
        }
    }

    /// Reports an epoch. Returns the inputs that follow at once.
    pub(super) fn report(&mut self, epoch: i32) -> Vec<Input> {
        match self {
            Self::Watch(link) => {
                link.report(epoch);
                Vec::new()
            }
            Self::Stream(transport, _) => transport.report(epoch, None, None),
        }
    }
}

/// A watch, and the inputs that the watch and the reports give.
pub(super) struct WatchLink {
    requests: Requests,
    names: Names,
    sender: mpsc::Sender<Input>,
    receiver: mpsc::Receiver<Input>,
    /// Held until the watch has shown the JobSet.
    seat: Option<OwnedSemaphorePermit>,
    _watch: AbortOnDropHandle<()>,
}

impl WatchLink {
    async fn next(&mut self) -> Vec<Input> {
        let input = self.receiver.recv().await;
        self.seat = None;
        input.into_iter().collect()
    }

    fn report(&self, epoch: i32) {
        let Requests { client, seats, dialect } = &self.requests;
        let (client, seats, dialect) = (client.clone(), Arc::clone(seats), *dialect);
        let (answers, names) = (self.sender.clone(), self.names.clone());
        tokio::spawn(async move {
            let _seat = seats.acquire_owned().await;
            let answer = match dialect {
                Dialect::Own => report::report(&client, &names, epoch, &report::Extras::default()).await,
                Dialect::Go => go_dialect::report(&client, &names.pod, epoch).await,
            };
            // The receiver is gone if the agent has restarted.
            let _ = answers.send(answer).await;
        });
    }
}
