//! Finds the topology domain of a leader: in a watch of all leaders and, for its node, at the API server.
//!
//! A follower whose leader is not placed is not refused at once. The Job controller creates it right after its leader,
//! the scheduler needs some milliseconds, and the watch tells when it is done: waiting a moment saves a refused request,
//! a Warning event, and the Job controller's back-off of a second and more. Meanwhile it holds a worker of the Job
//! controller, which has five by default. So the wait is short, and none is made for a leader for which the scheduler has
//! found no room: however many Jobs there are without room, they take no time from the others.
//!
//! Before a follower is refused for what the watch has not told in all that time, the leaders of its Job are listed: a
//! watch may be broken for minutes before anybody notices.
//!
//! Every read is limited in time. All limits together stay below the timeout that the webhook is registered with.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jobset_api::labels;
use jobset_objects::PartialPod;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::domains::Domains;
use super::leaders::{Leaders, NotPlaced, Placed};
use super::placement::Follower;
use super::refusal::{Obstacle, ReadError, Refusal, Unread};

/// Longest wait for a leader to be placed. With three reads, before it, after it and of the leader's node, it stays below 5 s.
pub const LONGEST_WAIT: Duration = Duration::from_millis(1500);
/// How long one read may take.
const READ_LIMIT: Duration = Duration::from_secs(1);
/// Number of followers that wait at the same time. One more is refused without a wait.
const SEATS: usize = 256;

/// What is known of leaders and of the nodes that they are on.
#[derive(Clone)]
pub struct Lookup(Arc<Inner>);

struct Inner {
    client: Client,
    wait: Duration,
    seats: Semaphore,
    leaders: watch::Sender<Leaders>,
    domains: Mutex<Domains>,
}

impl Lookup {
    /// A follower waits at most for `wait`, and never longer than [`LONGEST_WAIT`].
    pub fn new(client: Client, wait: Duration) -> Self {
        Self(Arc::new(Inner {
            client,
            wait: wait.min(LONGEST_WAIT),
            seats: Semaphore::new(SEATS),
            leaders: watch::Sender::new(Leaders::default()),
            domains: Mutex::default(),
        }))
    }

    /// Watches leaders, for ever. What fails is tried again; meanwhile leaders are listed as they are needed.
    pub async fn watch(&self) -> Infallible {
        let config = watcher::Config::default().labels(&leaders_of("")).page_size(500);
        let mut events = pin!(watcher(Api::all(self.0.client.clone()), config).default_backoff());
        let mut failing = false;
        loop {
            match events.next().await {
                Some(Ok(event)) => {
                    if failing {
                        info!("leaders are watched again");
                        failing = false;
                    }
                    self.0.leaders.send_modify(|leaders| leaders.see(&event));
                }
                Some(Err(error)) => {
                    if failing {
                        debug!(%error, "cannot watch leaders");
                    } else {
                        warn!(%error, "cannot watch leaders, trying again; they are listed one by one meanwhile");
                        failing = true;
                    }
                    self.0.leaders.send_modify(Leaders::lose_touch);
                }
                // The stream does not end.
                None => std::future::pending().await,
            }
        }
    }

    /// Whether all leaders are known, so that none has to be listed.
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
        let waits = |obstacle: fn(String, String) -> Obstacle| {
            Refusal::Waits(Box::new(follower.clone()), obstacle(leader.pod.clone(), leader.node.clone()))
        };
        let node = found.ok_or_else(|| waits(Obstacle::NodeGone))?;
        let domain = node.metadata.labels.unwrap_or_default().remove(topology);
        let domain = domain.ok_or_else(|| waits(Obstacle::NoDomain))?;
        self.domains(|domains| domains.put(&leader.node, topology, &domain, Instant::now()));
        Ok(domain)
    }

    fn domains<T>(&self, with: impl FnOnce(&mut Domains) -> T) -> T {
        with(&mut self.0.domains.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The leader, as soon as it is placed.
    async fn leader(&self, follower: &Follower) -> Result<Placed, Refusal> {
        let known = |leaders: &Leaders| leaders.in_touch().then(|| leaders.leader(&follower.job));
        let mut leaders = self.0.leaders.subscribe();
        let seen = known(&leaders.borrow());
        let listed = match seen {
            Some(Ok(leader)) => return Ok(leader),
            Some(Err(_)) => None,
            None => match self.list(follower).await {
                Ok(Ok(leader)) => return Ok(leader),
                listed => Some(listed),
            },
        };
        if let Ok(_seat) = self.0.seats.try_acquire() {
            let waits = |leader: Result<Placed, NotPlaced>| leader.is_err_and(|why| why.may_pass_soon());
            let settled = leaders.wait_for(|leaders| known(leaders).is_some_and(|leader| !waits(leader)));
            // What it has come to shows below.
            let _ = timeout(self.0.wait, settled).await.is_ok();
        }
        let seen = known(&leaders.borrow());
        let not_placed = match (seen, listed) {
            (Some(Ok(leader)), _) => return Ok(leader),
            (Some(Err(why)), None) if !why.may_pass_soon() => why,
            (Some(Err(why)), Some(_)) | (None, Some(Ok(Err(why)))) => why,
            (None, Some(Err(cause))) => return Err(unlisted(follower, cause)),
            // Nothing was heard in all that time: the watch may be broken without knowing it yet.
            (seen, _) => match (self.list(follower).await, seen) {
                (Ok(Ok(leader)), _) => return Ok(leader),
                (Ok(Err(why)), _) | (Err(_), Some(Err(why))) => why,
                (Err(cause), _) => return Err(unlisted(follower, cause)),
            },
        };
        Err(Refusal::Waits(Box::new(follower.clone()), Obstacle::NotPlaced(not_placed)))
    }

    /// Asks the API server for the leaders of one Job.
    async fn list(&self, follower: &Follower) -> Result<Result<Placed, NotPlaced>, ReadError> {
        let pods: Api<PartialPod> = Api::namespaced(self.0.client.clone(), follower.job.namespace());
        let of_job = ListParams::default().labels(&leaders_of(&format!(",{}={}", labels::JOB_NAME, follower.job_name)));
        let listed = read(pods.list(&of_job)).await?;
        Ok(Leaders::of_list(&listed.items).leader(&follower.job))
    }
}

/// Label selector of leaders.
fn leaders_of(more: &str) -> String {
    format!("{},{}=0{more}", labels::JOBSET_NAME, labels::COMPLETION_INDEX)
}

fn unlisted(follower: &Follower, cause: ReadError) -> Refusal {
    unread(follower, format!("leaders in namespace {}", follower.job.namespace()), cause)
}

fn unread(follower: &Follower, what: String, cause: ReadError) -> Refusal {
    Refusal::Unread(Box::new(follower.clone()), Unread { what, cause })
}

async fn read<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, ReadError> {
    match timeout(READ_LIMIT, request).await {
        Ok(answer) => answer.map_err(ReadError::Failed),
        Err(_) => Err(ReadError::Late(READ_LIMIT)),
    }
}
