//! Finds the topology domain of a leader: in a watch of all leaders and, for its node, at the API server.
//!
//! A follower whose leader is not placed is not refused at once. The Job controller creates it right after its leader,
//! the scheduler needs some milliseconds, and the watch reports when it is done: waiting a moment saves a refused request,
//! a Warning event, and the Job controller's back-off of a second and more. Meanwhile it holds a worker of the Job
//! controller, which has five by default. So the wait is short, and none is made for a leader for which the scheduler has
//! found no room: however many Jobs there are without room, they take no time from the others.
//!
//! Nobody can make this service list anything: leaders are known by the watch alone, whatever Job a Pod names. A watch that
//! receives no events is replaced after [`WATCH_LIMIT`], and one that fails is replaced by a new listing and watch.
//!
//! Every read is limited in time. All limits together stay below the timeout that the webhook is registered with.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jobset_api::labels;
use jobset_program::lock;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, DefaultBackoff, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::domains::Domains;
use super::leaders::{Leaders, Placed};
use super::placement::Follower;
use super::refusal::{Obstacle, ReadError, Refusal};
use crate::party;
use crate::places::Places;

/// Longest wait for a leader to be placed. With a read of the leader's node it stays below 5 s.
pub const LONGEST_WAIT: Duration = Duration::from_millis(1500);
/// How long one read may take.
const READ_LIMIT: Duration = Duration::from_secs(1);
/// How long one watch lasts, in seconds. A connection on which not even its end arrives is noticed some seconds later.
const WATCH_LIMIT: u32 = 10;
/// Longest pause before leaders are listed again, after a watch has failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Number of followers that wait at the same time: Pods of one namespace, which may name Jobs that do not exist, do not take the
/// places of all others. One that gets none is refused without a wait.
const SEATS: usize = 256;

/// What is known of leaders and of the nodes that they are on.
#[derive(Clone)]
pub struct Lookup(Arc<Inner>);

struct Inner {
    client: Client,
    wait: Duration,
    seats: Arc<Places>,
    leaders: watch::Sender<Leaders>,
    domains: Mutex<Domains>,
}

impl Lookup {
    /// A follower waits at most for `wait`, and never longer than [`LONGEST_WAIT`].
    pub fn new(client: Client, wait: Duration) -> Self {
        Self(Arc::new(Inner {
            client,
            wait: wait.min(LONGEST_WAIT),
            seats: Places::new(SEATS),
            leaders: watch::Sender::new(Leaders::default()),
            domains: Mutex::default(),
        }))
    }

    /// Watches leaders, for ever. What fails is tried again; meanwhile followers wait, or are refused.
    pub async fn watch(&self) -> Infallible {
        let of_all = watcher::Config::default().labels(&leaders()).page_size(500).timeout(WATCH_LIMIT);
        let mut pauses = DefaultBackoff::default();
        let mut failing = false;
        loop {
            // From the beginning: what a watch that has failed would go on with may be long ago.
            let mut events = pin!(watcher(Api::all(self.0.client.clone()), of_all.clone()));
            while let Some(event) = events.next().await {
                let event = match event {
                    Ok(event) => event,
                    Err(error) => {
                        if failing {
                            debug!(%error, "cannot watch leaders");
                        } else {
                            warn!(%error, "cannot watch leaders, trying again; followers wait meanwhile");
                            failing = true;
                        }
                        self.0.leaders.send_modify(|leaders| leaders.lose_touch(&error.to_string()));
                        break;
                    }
                };
                if failing && matches!(event, watcher::Event::InitDone) {
                    info!("leaders are watched again");
                    failing = false;
                }
                self.0.leaders.send_modify(|leaders| leaders.see(&event));
            }
            tokio::time::sleep(pauses.next().map_or(LONGEST_PAUSE, |pause| pause.min(LONGEST_PAUSE))).await;
        }
    }

    /// Whether all leaders are known.
    pub fn in_touch(&self) -> bool {
        self.0.leaders.borrow().in_touch()
    }

    /// The topology domain that a follower is to go to.
    ///
    /// # Errors
    /// When its leader is in none, or it could not be found out.
    pub async fn domain(&self, follower: &Follower) -> Result<String, Refusal> {
        let leader = self.leader(follower).await?;
        let topology = follower.topology.as_str();
        if let Some(domain) =
            self.domains(|domains| domains.get(&leader.node, topology, Instant::now()).map(str::to_owned))
        {
            return Ok(domain);
        }
        let nodes: Api<Node> = Api::all(self.0.client.clone());
        let found = read(nodes.get_metadata_opt(&leader.node)).await;
        let found = found.map_err(|cause| unread(follower, format!("node {}", leader.node), cause))?;
        let Placed { pod, node } = leader;
        let Some(read) = found else { return Err(waits(follower, Obstacle::NodeGone(pod, node))) };
        let Some(domain) = read.metadata.labels.unwrap_or_default().remove(topology) else {
            return Err(waits(follower, Obstacle::NoDomain(pod, node, topology.to_owned())));
        };
        self.domains(|domains| domains.put(&node, topology, &domain, Instant::now()));
        Ok(domain)
    }

    fn domains<T>(&self, with: impl FnOnce(&mut Domains) -> T) -> T {
        with(&mut lock(&self.0.domains))
    }

    async fn leader(&self, follower: &Follower) -> Result<Placed, Refusal> {
        let known = |leaders: &Leaders| leaders.in_touch().then(|| leaders.leader(&follower.job));
        let mut leaders = self.0.leaders.subscribe();
        if let Some(Ok(leader)) = known(&leaders.borrow()) {
            return Ok(leader);
        }
        if let Some(_seat) = self.0.seats.take_now(party::of_namespace(follower.job.namespace())) {
            let waits = |leader: Result<Placed, Obstacle>| leader.is_err_and(|why| why.may_pass_soon());
            let settled = leaders.wait_for(|leaders| known(leaders).is_some_and(|leader| !waits(leader)));
            // What it has come to shows below.
            let _ = timeout(self.0.wait, settled).await.is_ok();
        }
        let leaders = leaders.borrow();
        match known(&leaders) {
            Some(leader) => leader.map_err(|obstacle| waits(follower, obstacle)),
            None => Err(unread(follower, "leaders".to_owned(), ReadError::OutOfTouch(leaders.trouble().to_owned()))),
        }
    }
}

/// Label selector of leaders.
fn leaders() -> String {
    format!("{},{}=0", labels::JOBSET_NAME, labels::COMPLETION_INDEX)
}

fn waits(follower: &Follower, obstacle: Obstacle) -> Refusal {
    Refusal::Waits(Box::new(follower.clone()), obstacle)
}

fn unread(follower: &Follower, what: String, cause: ReadError) -> Refusal {
    Refusal::Unread(Box::new(follower.clone()), what, cause)
}

async fn read<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, ReadError> {
    match timeout(READ_LIMIT, request).await {
        Ok(answer) => answer.map_err(ReadError::Failed),
        Err(_) => Err(ReadError::Late(READ_LIMIT)),
    }
}
