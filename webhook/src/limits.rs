//! Limits for clients: time, connections, memory, and the size of JobSets. An answer names the limit that a request exceeds. What is
//! limited and can be waited for is given to addresses and namespaces in turn ([`Places`]).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use clap::{Args, value_parser};
use http_body_util::BodyExt as _;
use jobset_api::JobSetLimits;
use jobset_program::duration::positive_duration;
use jobset_program::log_limit;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use crate::memory::{Coming, Memory, Shortage, TakenAway};
use crate::party::{Party, PeerAddress};
use crate::places::{Place, Places};
use crate::turn::{Computing, Turn};

/// Largest body in bytes: the new and the old object, each at most 3 MiB (the API server's own limit), and the rest of the review.
pub const BODY_LIMIT: usize = 8 << 20;
/// A longer body, in bytes, is large. Reading a large one may take some hundred MiB, so each router reviews one at a time, and large
/// bodies that wait leave half of the memory to others.
pub(crate) const LARGE: usize = 1 << 20;
/// Largest capacity for a body before any of it has arrived, whatever length the client announces.
const FIRST_BUFFER: usize = 64 << 10;
/// Seconds after which to try again. The API server's client does so, within the webhook's timeout.
pub(crate) const RETRY_AFTER: header::HeaderValue = header::HeaderValue::from_static("1");

/// Bytes of a MiB.
const MIB: usize = 1 << 20;

/// Limits of the service.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct Limits {
    /// Open connections. A new one above the limit evicts one of the address that has most: a connection without a request, else
    /// one whose request or answer takes longer than `--displace-after`, else the one that has been idle longest. A connection
    /// with a review in progress makes room only for another address, and its review is still answered.
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
    /// a request takes the memory of the one that has been on its way longest, if that is longer than `--displace-after`, or else
    /// of the latest one of the namespace that holds most; otherwise it is answered with 503. At least the 8 MiB of one body.
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

    /// How long a body or an answer may be on its way before others can take its memory or its connection.
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
    /// What one JobSet may take.
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
    body: Coming,
    length: usize,
    large: Option<OwnedSemaphorePermit>,
}

/// The time that a review has waited for its turn, in the extensions of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited(pub(crate) Duration);

/// The limit that a request has exceeded, when the client should try again: a label of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// Memory for bodies and answers.
    Memory,
    /// Memory for large bodies.
    LargeMemory,
    /// The body arrived too slowly, and another request took its memory.
    Displaced,
    /// Time to wait for the turn.
    Turn,
    /// Time to wait for the turn of a large body.
    LargeTurn,
}

impl Overload {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Memory, Self::LargeMemory, Self::Displaced, Self::Turn, Self::LargeTurn];

    /// Value of the label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::LargeMemory => "large_memory",
            Self::Displaced => "displaced",
            Self::Turn => "turn",
            Self::LargeTurn => "large_turn",
        }
    }
}

/// Why a request is not reviewed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the body must not be larger than {BODY_LIMIT} bytes")]
    TooLarge,
    #[error("the body did not arrive within {0:?}")]
    TooSlow(Duration),
    #[error("the body could not be read: {0}")]
    Broken(axum::Error),
    #[error("too many requests at once: they and their answers fill {0} MiB (--max-body-memory); try again")]
    NoMemory(u32),
    #[error("the body came too slowly: {0} (--displace-after); try again")]
    Slow(TakenAway),
    #[error(
        "too many requests of one namespace at once: they fill memory that others need (--max-body-memory); try again"
    )]
    HeldMost,
    #[error("too many large requests at once: their bodies fill {0} bytes; try again")]
    NoMemoryForLarge(usize),
    #[error("too many reviews at once: {reviews}, and the turn of this one did not come within {wait:?}; try again")]
    NoTurn { reviews: usize, wait: Duration },
    #[error("reviews of over {LARGE} bytes have one turn, and none ended within {0:?}; try again")]
    NoTurnForLarge(Duration),
}

/// Applies the limits to the routes: handlers get requests whose body has arrived, with their turn ([`Turn`]). At most `at_once` are
/// computed at the same time, and as many wait for something else. Each router has limits of its own.
pub fn guard(router: Router, limits: &Limits, at_once: u32) -> Router {
    guard_with(router, limits, at_once, &Arc::new(Computing::new(at_once)))
}

/// As [`guard`], with places in which reviews of several routers are computed.
pub(crate) fn guard_with(router: Router, limits: &Limits, at_once: u32, computing: &Arc<Computing>) -> Router {
    let gate = Gate {
        memory: Memory::new(limits.max_body_memory as usize * (1 << 20), limits.displace_after),
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
    let arrived = match gate.read(PeerAddress::of(&head.extensions), body).await {
        Ok(arrived) => arrived,
        Err(refusal) => return refusal.answer(),
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
    let mut answer = answered.await.unwrap_or_else(|refusal| refusal.answer());
    answer.extensions_mut().insert(waited);
    answer
}

impl Gate {
    async fn turn(&self, Arrived { body, length, large }: Arrived) -> Result<Turn, Refusal> {
        let (place, turn_of_large) = tokio::select! {
            places = self.places(body.party(), length) => places?,
            taken_away = body.taken_away() => return Err(taken_away.into()),
        };
        let (computing, waiting) = (Arc::clone(&self.computing), Arc::clone(&self.waiting));
        Ok(Turn::new(body, place, computing, waiting, (turn_of_large, large)))
    }

    /// A place for the first computation, and the turn of a large body.
    async fn places(&self, party: &Party, length: usize) -> Result<(Place, Option<Place>), Refusal> {
        let wait = self.limits.review_wait;
        let until = Instant::now() + wait;
        let turn_of_large = async { if length > LARGE { Some(self.large.take(party.clone()).await) } else { None } };
        let turn_of_large = timeout_at(until, turn_of_large).await.map_err(|_| Refusal::NoTurnForLarge(wait))?;
        let place = timeout_at(until, self.computing.places.take(party.clone())).await;
        let place = place.map_err(|_| Refusal::NoTurn { reviews: self.computing.at_once, wait })?;
        Ok((place, turn_of_large))
    }

    async fn read(&self, from: PeerAddress, body: Body) -> Result<Arrived, Refusal> {
        let limit = self.limits.body_timeout;
        timeout(limit, self.collect(from, body)).await.unwrap_or(Err(Refusal::TooSlow(limit)))
    }

    /// Reads the whole body. It is counted as it arrives, so that a client cannot hold memory without sending as much.
    async fn collect(&self, from: PeerAddress, mut body: Body) -> Result<Arrived, Refusal> {
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > BODY_LIMIT {
            return Err(Refusal::TooLarge);
        }
        let coming = self.memory.coming(Party::unnamed(from), announced.min(FIRST_BUFFER));
        let mut coming = coming.map_err(|short| self.refuse(short.into()))?;
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(Refusal::Broken)?.into_data() else { continue };
            length += data.len();
            if length > BODY_LIMIT {
                return Err(Refusal::TooLarge);
            }
            coming.extend(&data).map_err(|short| self.refuse(short))?;
        }
        let large = self.count_large(length)?;
        coming.arrived()?;
        Ok(Arrived { body: coming, length, large })
    }

    /// A whole body keeps its memory until it is answered, so large ones are counted a second time.
    fn count_large(&self, length: usize) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        let (true, Ok(bytes)) = (length > LARGE, u32::try_from(length)) else { return Ok(None) };
        let counted = Arc::clone(&self.large_memory).try_acquire_many_owned(bytes);
        counted.map(Some).map_err(|_| Refusal::NoMemoryForLarge(large_memory(&self.limits)))
    }

    /// The answer, counted in place of its request until the client has received it.
    async fn count(&self, answer: Response, turn: &Turn) -> Result<Response, Refusal> {
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(Refusal::Broken)?.to_bytes();
        let going = self.memory.going(body.into(), turn.take_body(), turn.party());
        let going = going.map_err(|short| self.refuse(short.into()))?;
        Ok(Response::from_parts(head, Body::new(going)))
    }

    fn refuse(&self, shortage: Shortage) -> Refusal {
        match shortage {
            Shortage::NoMemory(_) => Refusal::NoMemory(self.limits.max_body_memory),
            Shortage::TakenAway(taken_away) => taken_away.into(),
        }
    }
}

impl From<TakenAway> for Refusal {
    fn from(taken_away: TakenAway) -> Self {
        match taken_away {
            TakenAway::Slow(_) => Self::Slow(taken_away),
            TakenAway::HeldMost => Self::HeldMost,
        }
    }
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
            Self::NoMemory(_)
            | Self::NoMemoryForLarge(_)
            | Self::Slow(_)
            | Self::HeldMost
            | Self::NoTurn { .. }
            | Self::NoTurnForLarge(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The limit, if the client should try again. `None` if the request itself is at fault.
    fn overload(&self) -> Option<Overload> {
        match self {
            Self::TooLarge | Self::TooSlow(_) | Self::Broken(_) => None,
            Self::NoMemory(_) | Self::HeldMost => Some(Overload::Memory),
            Self::NoMemoryForLarge(_) => Some(Overload::LargeMemory),
            Self::Slow(_) => Some(Overload::Displaced),
            Self::NoTurn { .. } => Some(Overload::Turn),
            Self::NoTurnForLarge(_) => Some(Overload::LargeTurn),
        }
    }

    pub(crate) fn answer(&self) -> Response {
        let status = self.status();
        let source = self.overload().map_or_else(|| status.to_string(), |it| it.label().to_owned());
        if let Some(suppressed) = log_limit::permit(&source) {
            warn!(status = status.as_u16(), reason = %self, suppressed, "cannot answer a request");
        }
        let mut response = (status, format!("{self}\n")).into_response();
        if let Some(overload) = self.overload() {
            response.extensions_mut().insert(overload);
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}
