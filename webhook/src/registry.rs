//! The open connections of a port, and which of them makes room when there are too many.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::limits::Limits;

/// How long a request may be on its way before its connection counts for less than an idle one: far longer than those of API
/// servers take.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a connection does, as far as it matters to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It has not asked for anything yet: the handshake, or what comes before the first request.
    Greeting(Instant),
    /// Of one request or several a part is still to come, of the oldest since then.
    Receiving(Instant),
    /// At least one request has come as a whole, and is not answered.
    Working,
    /// All requests are answered, the last one then.
    Idle(Instant),
}

impl Phase {
    /// How easily it can be missed, the least first; `None` where the answer to a whole request would be lost.
    fn rank(self, now: Instant) -> Option<(u8, Instant)> {
        match self {
            Self::Greeting(since) => Some((0, since)),
            Self::Receiving(since) if since + PATIENCE < now => Some((1, since)),
            Self::Idle(since) => Some((2, since)),
            Self::Receiving(since) => Some((3, since)),
            Self::Working => None,
        }
    }
}

/// The requests of a connection.
#[derive(Debug)]
struct State {
    /// When it was accepted, or its last request answered.
    since: Instant,
    /// Whether there ever was a request.
    asked: bool,
    /// Since when the rest of a head is awaited.
    head: Option<Instant>,
    /// Requests whose body is still to come, by the order in which they began, and when that was.
    receiving: BTreeMap<u64, Instant>,
    next: u64,
    /// Requests that have come as a whole.
    working: u32,
}

impl State {
    fn new(now: Instant) -> Self {
        Self { since: now, asked: false, head: None, receiving: BTreeMap::new(), next: 0, working: 0 }
    }

    fn phase(&self) -> Phase {
        match self.receiving.first_key_value().map(|(_, since)| *since).or(self.head) {
            _ if self.working > 0 => Phase::Working,
            _ if !self.asked => Phase::Greeting(self.since),
            Some(since) => Phase::Receiving(since),
            None => Phase::Idle(self.since),
        }
    }

    /// Bytes have come; whether they begin a head.
    fn hear(&mut self, now: Instant) -> bool {
        let begins = self.head.is_none() && self.receiving.is_empty() && self.working == 0;
        if begins {
            self.head = Some(now);
        }
        begins
    }

    /// The head of a request is whole.
    fn begin(&mut self, now: Instant) -> u64 {
        let id = self.next;
        self.next = id.wrapping_add(1);
        (self.asked, self.head) = (true, None);
        self.receiving.insert(id, now);
        id
    }

    /// No more is to come of the request.
    fn receive(&mut self, id: u64) {
        if self.receiving.remove(&id).is_some() {
            self.working = self.working.saturating_add(1);
        }
    }

    /// The request is answered, be it before all of it has come.
    fn end(&mut self, id: u64, now: Instant) {
        if self.receiving.remove(&id).is_none() {
            self.working = self.working.saturating_sub(1);
        }
        self.since = now;
    }

    /// When to look at the connection again: if it is still as it is now by then, it has been so for too long.
    fn deadline(&self, limits: &Limits, now: Instant) -> Instant {
        match self.head {
            Some(since) => since + limits.header_timeout,
            None if self.working > 0 || !self.receiving.is_empty() => now + limits.idle_timeout,
            None => self.since + limits.idle_timeout,
        }
    }
}

/// The connection that makes room. First of those that have not asked for anything yet the oldest, so that a crowd which
/// never does displaces itself; then the one whose request has been on its way for longest, if that is too long; then the
/// one that has been idle for longest; and then the others whose requests are on their way.
fn victim(phases: impl Iterator<Item = (u64, Phase)>, now: Instant) -> Option<u64> {
    phases.filter_map(|(id, phase)| Some((phase.rank(now)?, id))).min().map(|(_, id)| id)
}

/// The open connections.
pub(crate) struct Registry {
    max: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, Arc<Entry>>,
}

struct Entry {
    state: Mutex<State>,
    /// There has been a request.
    asked: CancellationToken,
    /// A head has begun.
    head: Notify,
    close: CancellationToken,
}

/// An open connection. It leaves the registry with its last clone.
#[derive(Clone)]
pub(crate) struct Connection {
    entry: Arc<Entry>,
    _listed: Arc<Listed>,
}

struct Listed {
    id: u64,
    registry: Arc<Registry>,
}

/// A request in flight.
pub(crate) struct Request {
    connection: Connection,
    id: u64,
}

/// What is still to come of a request.
pub(crate) struct Receiving {
    entry: Arc<Entry>,
    id: u64,
}

impl Registry {
    pub(crate) fn new(max: u32) -> Self {
        Self { max: max as usize, open: Mutex::default() }
    }

    /// A place for a new connection, if need be that of another, which is told to end; `None` where all have
    /// reviews in progress.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Connection> {
        let (mut open, now) = (lock(&self.open), Instant::now());
        if open.connections.len() >= self.max {
            let victim = victim(open.connections.iter().map(|(id, entry)| (*id, lock(&entry.state).phase())), now)?;
            open.connections.remove(&victim).inspect(|entry| entry.close.cancel());
        }
        let id = open.next;
        open.next = id.wrapping_add(1);
        let entry = Arc::new(Entry {
            state: Mutex::new(State::new(now)),
            asked: CancellationToken::new(),
            head: Notify::new(),
            close: CancellationToken::new(),
        });
        open.connections.insert(id, Arc::clone(&entry));
        Some(Connection { entry, _listed: Arc::new(Listed { id, registry: Arc::clone(self) }) })
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.registry.open).connections.remove(&self.id);
    }
}

impl Connection {
    /// When to look at the connection again: if it is still as it is now by then, it has been so for too long.
    pub(crate) fn deadline(&self, limits: &Limits) -> Instant {
        lock(&self.entry.state).deadline(limits, Instant::now())
    }

    /// Whether there are requests that have come as a whole and are not answered.
    pub(crate) fn is_working(&self) -> bool {
        lock(&self.entry.state).working > 0
    }

    /// Tells it to end.
    pub(crate) fn close(&self) {
        self.entry.close.cancel();
    }

    /// Resolves when it has been told to end.
    pub(crate) async fn closed(&self) {
        self.entry.close.cancelled().await;
    }

    /// Resolves when there has been a request.
    pub(crate) async fn asked(&self) {
        self.entry.asked.cancelled().await;
    }

    /// Resolves each time when a head begins.
    pub(crate) async fn head_begun(&self) {
        self.entry.head.notified().await;
    }

    /// The rest of a head is awaited from now on, unless these bytes belong to something that is.
    pub(crate) fn hear(&self) {
        if lock(&self.entry.state).hear(Instant::now()) {
            self.entry.head.notify_one();
        }
    }

    /// Has a request in flight until the first is dropped, of which something is still to come until the second is.
    pub(crate) fn begin(&self) -> (Request, Receiving) {
        let id = lock(&self.entry.state).begin(Instant::now());
        self.entry.asked.cancel();
        (Request { connection: self.clone(), id }, Receiving { entry: Arc::clone(&self.entry), id })
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        lock(&self.entry.state).receive(self.id);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        lock(&self.connection.entry.state).end(self.id, Instant::now());
    }
}

/// What is locked here is whole at every moment, whoever panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use rstest::rstest;

    use super::*;

    #[derive(Clone, Copy)]
    enum Is {
        Greeting(u64),
        Receiving(u64),
        Working,
        Idle(u64),
    }
    use Is::{Greeting, Idle, Receiving as Sending, Working};

    /// With the seconds since when, at second 10.
    #[rstest]
    #[case::nobody(&[], None)]
    #[case::all_have_reviews_in_progress(&[Working, Working], None)]
    #[case::the_oldest_that_has_not_asked(&[Idle(1), Greeting(5), Greeting(3), Sending(2), Working], Some(2))]
    #[case::the_slowest_request(&[Idle(1), Sending(8), Sending(7), Working], Some(2))]
    #[case::the_longest_idle(&[Idle(7), Working, Idle(2), Sending(9)], Some(2))]
    #[case::a_request_that_has_just_begun(&[Sending(10), Working, Sending(9)], Some(2))]
    fn whoever_can_be_missed_makes_room(#[case] connections: &[Is], #[case] expected: Option<u64>) {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let phases = connections.iter().map(|it| match *it {
            Greeting(since) => Phase::Greeting(at(since)),
            Sending(since) => Phase::Receiving(at(since)),
            Working => Phase::Working,
            Idle(since) => Phase::Idle(at(since)),
        });
        assert_eq!(victim((0..).zip(phases), at(10)), expected);
    }

    #[test]
    fn a_connection_goes_from_head_to_body_to_work_to_idle() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut state = State::new(start);
        assert!(state.hear(at(1)) && !state.hear(at(2)));
        assert_eq!(state.phase(), Phase::Greeting(start), "it has not asked");
        let (first, second) = (state.begin(at(3)), state.begin(at(4)));
        assert_eq!(state.phase(), Phase::Receiving(at(3)));
        assert!(!state.hear(at(5)), "this is of the bodies");
        state.receive(first);
        assert_eq!(state.phase(), Phase::Working);
        state.end(first, at(6));
        assert_eq!(state.phase(), Phase::Receiving(at(4)));
        state.end(second, at(7));
        state.receive(second);
        assert_eq!(state.phase(), Phase::Idle(at(7)), "it was answered before it had come");
        assert!(state.hear(at(8)));
        assert_eq!(state.phase(), Phase::Receiving(at(8)));
    }

    #[test]
    fn the_time_for_a_head_runs_while_one_is_awaited_and_that_for_idling_between_them() {
        let limits = crate::args::Args::parse_from(["jobset-webhook", "--namespace=ns"]).limits;
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut state = State::new(start);
        state.hear(at(1));
        assert_eq!(state.deadline(&limits, at(2)), at(6));
        let id = state.begin(at(2));
        assert_eq!(state.deadline(&limits, at(3)), at(183));
        state.end(id, at(4));
        assert_eq!(state.deadline(&limits, at(100)), at(184));
        state.hear(at(120));
        assert_eq!(state.deadline(&limits, at(121)), at(125));
    }

    #[test]
    fn one_too_many_displaces_one_that_can_be_missed_and_is_refused_where_none_can() {
        let registry = Arc::new(Registry::new(2));
        let (first, second) = (registry.admit().unwrap(), registry.admit().unwrap());
        let third = registry.admit().unwrap();
        assert!(first.entry.close.is_cancelled() && !second.entry.close.is_cancelled());
        let work = |connection: &Connection| connection.begin().0;
        let working = (work(&second), work(&third));
        assert!(registry.admit().is_none());
        drop(first);
        assert!(registry.admit().is_none(), "it had left already");
        drop((second, third));
        assert!(registry.admit().is_none(), "requests are in flight");
        drop(working);
        let (fourth, _fifth) = (registry.admit().unwrap(), registry.admit().unwrap());
        let _slow = fourth.begin();
        let _sixth = registry.admit().unwrap();
        assert!(!fourth.entry.close.is_cancelled());
        let _seventh = registry.admit().unwrap();
        assert!(!fourth.entry.close.is_cancelled(), "there are others which have not asked");
    }
}
