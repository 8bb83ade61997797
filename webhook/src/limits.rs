//! Limits for clients: time, connections, memory, and the size of JobSets. An answer names the limit that a request exceeds. What is
//! limited and can be waited for is given to addresses and namespaces in turn ([`Places`]).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use clap::{Args, value_parser};
use http_body_util::BodyExt as _;
use jobset_api::JobSetLimits;
use jobset_program::duration::positive_duration;
use jobset_program::server;
use jobset_program::server::party::Party;
use jobset_program::server::places::Size;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use crate::memory::{Memory, ReviewMemory};
use crate::party;
use crate::places::{Place, Places};
use crate::turn::{Computing, Turn};
use crate::unreviewed::Unreviewed;

/// Largest body in bytes: the new and the old object, each at most 3 MiB (the API server's own limit), and the rest of the review.
pub const BODY_LIMIT: usize = 8 << 20;
/// A longer body, in bytes, is large. Reading a large one may take some hundred MiB, so each router reviews one at a time, and large
/// bodies that wait leave half of the memory to others.
pub(crate) const LARGE: usize = 1 << 20;
/// Largest capacity for a body before any of it has arrived, whatever length the client announces.
const FIRST_BUFFER: usize = 64 << 10;

/// Bytes of a MiB.
const MIB: usize = 1 << 20;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct Limits {
    /// Open connections. A new one above the limit evicts one of the IPv4 address or IPv6 /64 that has most: the oldest without
    /// an answer so far, else the one whose last answer is longest ago. A connection with a review in progress makes room only
    /// for another address, and its review is still answered.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = value_parser!(u32).range(1..))]
    pub max_connections: u32,

    /// Requests in flight on one HTTP/2 connection.
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = value_parser!(u32).range(1..))]
    pub max_concurrent_streams: u32,

    /// Reviews that are computed at the same time, at most 4. Others wait: namespaces take turns, and one alone gets at most half.
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = value_parser!(u32).range(1..=65_536))]
    pub max_concurrent_reviews: u32,

    /// Pods whose leader is looked for at the same time; most of them wait for it to be placed. Others wait: namespaces take turns,
    /// and one alone gets at most half.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = value_parser!(u32).range(1..=65_536))]
    pub max_concurrent_pods: u32,

    /// How long a review waits for its turn before it is answered with 503.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = positive_duration)]
    pub review_wait: Duration,

    /// Memory for the bodies and answers of reviews of JobSets in MiB, and as much again for those of Pods. When it is used up,
    /// the oldest request of the address and namespace that holds most makes room, but for its own namespace only after
    /// `--displace-after`; otherwise a request is answered with 503. At least the 8 MiB of one body.
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = value_parser!(u32).range(8..=2048))]
    pub max_body_memory: u32,

    /// Jobs that one JobSet may have: the replicas of all its replicatedJobs together. An existing JobSet that has more keeps
    /// them, and may be changed except to have still more. 0 sets no limit.
    #[arg(long, value_name = "NUMBER", default_value_t = JobSetLimits::default().jobs)]
    pub max_jobs_per_jobset: u32,

    /// Pods that one JobSet may run at the same time: for each replicatedJob, replicas times the smaller of parallelism and
    /// completions. An existing JobSet that has more keeps them, and may be changed except to have still more. 0 sets no limit.
    /// The controller must have the same.
    #[arg(long, value_name = "NUMBER", default_value_t = JobSetLimits::default().pods)]
    pub max_pods_per_jobset: u32,

    /// Memory that the specification of one JobSet may take in the controller, in MiB. Long lists take it: an entry of volumes
    /// has 3 KiB, a container 2 KiB, a variable of the environment 0.4 KiB, whatever is in it. An existing JobSet that takes
    /// more may be changed except to take still more. 0 sets no limit. The controller must have the same.
    #[arg(long, value_name = "MIB", default_value_t = mib(JobSetLimits::default().memory), value_parser = value_parser!(u32).range(..=1024))]
    pub max_memory_per_jobset: u32,

    /// How long a body or an answer may be on its way before others of its namespace can take its memory.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = positive_duration)]
    pub displace_after: Duration,

    /// How long a client may take for the TLS handshake.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive_duration)]
    pub handshake_timeout: Duration,

    /// How long a client may take for the head of a request, from its first byte (HTTP/1.1).
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive_duration)]
    pub header_timeout: Duration,

    /// How long a client may take for the body of a request, and as long for its answer.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive_duration)]
    pub body_timeout: Duration,

    /// How long a connection may be idle, before its first request and between requests. API servers close theirs after
    /// 90s, and should be the first to: they do not repeat a review that they send while it is closed here.
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = positive_duration)]
    pub idle_timeout: Duration,

    /// How often HTTP/2 clients are asked whether they are still there.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = positive_duration)]
    pub keep_alive_interval: Duration,

    /// How long they may take to answer.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive_duration)]
    pub keep_alive_timeout: Duration,
}

impl Limits {
    /// The limits of connections until their first byte of HTTP.
    pub(crate) fn connections(&self) -> server::Limits {
        let places = Size::of(self.max_connections as usize);
        server::Limits { places, handshake: self.handshake_timeout, life: Duration::MAX }
    }

    pub(crate) fn of_jobset(&self) -> JobSetLimits {
        let memory = self.max_memory_per_jobset as usize * MIB;
        JobSetLimits { jobs: self.max_jobs_per_jobset, pods: self.max_pods_per_jobset, memory }
    }
}

/// A default in MiB.
fn mib(bytes: usize) -> u32 {
    u32::try_from(bytes / MIB).unwrap_or(u32::MAX)
}

/// The limits of one router.
struct Gate {
    limits: Limits,
    memory: Arc<Memory>,
    computing: Arc<Computing>,
    /// Reviews that wait for something else.
    waiting: Arc<Places>,
    /// For reviews with a large body.
    large: Arc<Places>,
    /// Bytes of large bodies.
    large_memory: Arc<Semaphore>,
}

/// A request whose body has arrived.
struct Arrived {
    memory: ReviewMemory,
    length: usize,
    large: Option<OwnedSemaphorePermit>,
}

/// The time that a review has waited for its turn, in the extensions of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited(pub(crate) Duration);

/// Applies the limits to the routes: handlers get requests whose body has arrived, with their turn ([`Turn`]). At most `at_once` are
/// computed at the same time, and as many wait for something else. Each router has limits of its own.
pub fn guard(router: Router, limits: &Limits, at_once: u32) -> Router {
    guard_with(router, limits, at_once, &Arc::new(Computing::new(at_once)))
}

/// As [`guard`], with places in which reviews of several routers are computed.
pub(crate) fn guard_with(router: Router, limits: &Limits, at_once: u32, computing: &Arc<Computing>) -> Router {
    let gate = Gate {
        memory: Memory::new(limits.max_body_memory as usize, limits.displace_after),
        computing: Arc::clone(computing),
        waiting: Places::new(at_once as usize),
        large: Places::new(1),
        large_memory: Arc::new(Semaphore::new(large_memory(limits))),
        limits: limits.clone(),
    };
    // The size of the body is checked before a route's own limit could be.
    router.route_layer(DefaultBodyLimit::disable()).route_layer(middleware::from_fn_with_state(Arc::new(gate), pass))
}

/// Memory for large bodies, in bytes: half of all, and at least one body.
fn large_memory(limits: &Limits) -> usize {
    (limits.max_body_memory as usize * (1 << 19)).max(BODY_LIMIT)
}

async fn pass(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let arrived = match gate.read(party::of(&head.extensions), body).await {
        Ok(arrived) => arrived,
        Err(unreviewed) => return unreviewed.answer(),
    };
    let began = Instant::now();
    let turn = gate.turn(arrived).await;
    let waited = Waited(began.elapsed());
    let answered = async {
        let turn = turn?;
        head.extensions.insert(turn.clone());
        let answer = next.run(Request::from_parts(head, Body::new(turn.whole_body()))).await;
        gate.count(answer, &turn).await
    };
    let mut answer = answered.await.unwrap_or_else(|unreviewed| unreviewed.answer());
    answer.extensions_mut().insert(waited);
    answer
}

impl Gate {
    async fn turn(&self, Arrived { memory, length, large }: Arrived) -> Result<Turn, Unreviewed> {
        let (place, turn_of_large) = memory.waits(self.places(memory.party(), length)).await??;
        let (computing, waiting) = (Arc::clone(&self.computing), Arc::clone(&self.waiting));
        Ok(Turn::new(memory, place, computing, waiting, (turn_of_large, large)))
    }

    /// A place for the first computation, and the turn of a large body.
    async fn places(&self, party: &Party, length: usize) -> Result<(Place, Option<Place>), Unreviewed> {
        let wait = self.limits.review_wait;
        let until = Instant::now() + wait;
        let turn_of_large = async { if length > LARGE { Some(self.large.take(party.clone()).await) } else { None } };
        let turn_of_large = timeout_at(until, turn_of_large).await.map_err(|_| Unreviewed::NoTurnForLarge(wait))?;
        let place = timeout_at(until, self.computing.places.take(party.clone())).await;
        let place = place.map_err(|_| Unreviewed::NoTurn { reviews: self.computing.at_once, wait })?;
        Ok((place, turn_of_large))
    }

    async fn read(&self, from: Party, body: Body) -> Result<Arrived, Unreviewed> {
        let limit = self.limits.body_timeout;
        timeout(limit, self.collect(from, body)).await.unwrap_or(Err(Unreviewed::TooSlow(limit)))
    }

    /// Reads the whole body. It is counted as it arrives, so that a client cannot hold memory without sending as much.
    async fn collect(&self, from: Party, mut body: Body) -> Result<Arrived, Unreviewed> {
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > BODY_LIMIT {
            return Err(Unreviewed::TooLarge);
        }
        let mut memory = self.memory.coming(from, announced.min(FIRST_BUFFER))?;
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(Unreviewed::Broken)?.into_data() else { continue };
            length += data.len();
            if length > BODY_LIMIT {
                return Err(Unreviewed::TooLarge);
            }
            memory.extend(&data)?;
        }
        let large = self.count_large(length)?;
        memory.arrived()?;
        Ok(Arrived { memory, length, large })
    }

    /// A whole body keeps its memory until it is answered, so large ones are counted a second time.
    fn count_large(&self, length: usize) -> Result<Option<OwnedSemaphorePermit>, Unreviewed> {
        let (true, Ok(bytes)) = (length > LARGE, u32::try_from(length)) else { return Ok(None) };
        let counted = Arc::clone(&self.large_memory).try_acquire_many_owned(bytes);
        counted.map(Some).map_err(|_| Unreviewed::NoMemoryForLarge(large_memory(&self.limits)))
    }

    /// The answer, counted in place of its request until the client has received it.
    async fn count(&self, answer: Response, turn: &Turn) -> Result<Response, Unreviewed> {
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(Unreviewed::Broken)?.to_bytes();
        Ok(Response::from_parts(head, Body::new(turn.memory().going(body.into())?)))
    }
}
