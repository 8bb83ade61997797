//! The open connections of a port. At the limit, a new connection evicts one of the address that has most: the one that is least
//! needed.

mod state;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::limits::Limits;
use state::{State, victim};

/// The open connections.
pub(crate) struct Registry {
    max: usize,
    /// A request or an answer that takes longer is evicted before idle connections.
    slow_after: Duration,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, Arc<Entry>>,
}

struct Entry {
    address: IpAddr,
    state: Mutex<State>,
    /// Cancelled by the first request.
    asked: CancellationToken,
    /// Notified when a head or an answer begins, because the deadline may be an earlier one then.
    begun: Notify,
    close: CancellationToken,
}

/// An open connection. The registry removes it with its last clone.
#[derive(Clone)]
pub(crate) struct Connection {
    entry: Arc<Entry>,
    _listed: Arc<Listed>,
}

struct Listed {
    id: u64,
    registry: Arc<Registry>,
}

/// A request in flight, until the client has received the answer.
pub(crate) struct Request {
    connection: Connection,
    id: u64,
}

/// The part of a request that has not arrived yet.
pub(crate) struct Receiving {
    entry: Arc<Entry>,
    id: u64,
}

impl Registry {
    pub(crate) fn new(max: u32, slow_after: Duration) -> Self {
        Self { max: max as usize, slow_after, open: Mutex::default() }
    }

    /// Registers a new connection from this address. At the limit it evicts another one; `None` if its address has most connections,
    /// and reviews are in progress on all of them.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Connection> {
        let (mut open, now) = (lock(&self.open), Instant::now());
        if open.connections.len() >= self.max {
            let victim = open.victim(address, self.slow_after, now)?;
            open.connections.remove(&victim).inspect(|entry| entry.close.cancel());
        }
        let id = open.next;
        open.next = id.wrapping_add(1);
        let entry = Arc::new(Entry {
            address,
            state: Mutex::new(State::new(now)),
            asked: CancellationToken::new(),
            begun: Notify::new(),
            close: CancellationToken::new(),
        });
        open.connections.insert(id, Arc::clone(&entry));
        Some(Connection { entry, _listed: Arc::new(Listed { id, registry: Arc::clone(self) }) })
    }
}

impl Open {
    /// The connection that makes room for a new one. One with reviews in progress, which ends when they are answered, makes room only
    /// for another address.
    fn victim(&self, of_new: IpAddr, slow_after: Duration, now: Instant) -> Option<u64> {
        let mut counts = HashMap::from([(of_new, 1)]);
        for entry in self.connections.values() {
            *counts.entry(entry.address).or_default() += 1;
        }
        let (most, _) = counts.into_iter().max_by_key(|(address, count)| (*count, *address == of_new))?;
        let of_most = || self.connections.iter().filter(|(_, entry)| entry.address == most);
        let phases = of_most().map(|(id, entry)| (*id, lock(&entry.state).phase()));
        let latest = || of_most().map(|(id, _)| *id).max().filter(|_| most != of_new);
        victim(phases, slow_after, now).or_else(latest)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        lock(&self.registry.open).connections.remove(&self.id);
    }
}

impl Connection {
    /// When the connection exceeds a time limit, unless its state changes before.
    pub(crate) fn deadline(&self, limits: &Limits) -> Instant {
        lock(&self.entry.state).deadline(limits, Instant::now())
    }

    /// See [`State::end_of_work`].
    pub(crate) fn end_of_work(&self, linger: Duration) -> Option<Instant> {
        lock(&self.entry.state).end_of_work(linger)
    }

    /// See [`State::end_of_all`].
    pub(crate) fn end_of_all(&self, linger: Duration) -> Option<Instant> {
        lock(&self.entry.state).end_of_all(linger)
    }

    /// Asks the connection to end.
    pub(crate) fn close(&self) {
        self.entry.close.cancel();
    }

    /// Resolves when the connection has been asked to end.
    pub(crate) async fn closed(&self) {
        self.entry.close.cancelled().await;
    }

    /// Resolves with the first request.
    pub(crate) async fn asked(&self) {
        self.entry.asked.cancelled().await;
    }

    /// Resolves each time a head or an answer begins.
    pub(crate) async fn begun(&self) {
        self.entry.begun.notified().await;
    }

    /// Bytes have arrived. If no request is in flight, they begin a head.
    pub(crate) fn hear(&self) {
        if lock(&self.entry.state).hear(Instant::now()) {
            self.entry.begun.notify_one();
        }
    }

    /// A request begins. It is in flight until the first value is dropped, and its body arrives until the second is.
    pub(crate) fn begin(&self) -> (Request, Receiving) {
        let id = lock(&self.entry.state).begin(Instant::now());
        self.entry.asked.cancel();
        (Request { connection: self.clone(), id }, Receiving { entry: Arc::clone(&self.entry), id })
    }
}

impl Request {
    /// The handler has answered, and the answer is being sent.
    pub(crate) fn answered(&self) {
        lock(&self.connection.entry.state).answer(self.id, Instant::now());
        self.connection.entry.begun.notify_one();
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

/// Locks the mutex, also after a panic: every critical section leaves consistent data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const API_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn connection_above_limit_evicts_another_and_is_rejected_if_all_are_working() {
        let registry = Arc::new(Registry::new(2, Duration::from_secs(1)));
        let (first, second) = (registry.admit(API_SERVER).unwrap(), registry.admit(API_SERVER).unwrap());
        let third = registry.admit(API_SERVER).unwrap();
        assert!(first.entry.close.is_cancelled() && !second.entry.close.is_cancelled());
        let work = |connection: &Connection| connection.begin().0;
        let working = (work(&second), work(&third));
        assert!(registry.admit(API_SERVER).is_none());
        drop(first);
        assert!(registry.admit(API_SERVER).is_none(), "the evicted one does not count");
        drop((second, third));
        assert!(registry.admit(API_SERVER).is_none(), "requests are in flight");
        drop(working);
        let (fourth, _fifth) = (registry.admit(API_SERVER).unwrap(), registry.admit(API_SERVER).unwrap());
        let _slow = fourth.begin();
        let _sixth = registry.admit(API_SERVER).unwrap();
        assert!(!fourth.entry.close.is_cancelled());
        let _seventh = registry.admit(API_SERVER).unwrap();
        assert!(!fourth.entry.close.is_cancelled(), "others have not sent a request yet");
    }

    #[test]
    fn connection_above_limit_evicts_one_of_the_address_that_has_most() {
        let registry = Arc::new(Registry::new(4, Duration::from_secs(1)));
        let idle = registry.admit(API_SERVER).unwrap();
        let strange: Vec<_> = (0..3).map(|_| registry.admit(STRANGER).unwrap()).collect();
        let _reviews: Vec<_> =
            strange.iter().map(Connection::begin).map(|(review, receiving)| (review, drop(receiving))).collect();
        assert!(registry.admit(STRANGER).is_none(), "its own have reviews in progress");
        assert!(!idle.entry.close.is_cancelled());
        let second = registry.admit(API_SERVER).unwrap();
        let evicted: Vec<_> = strange.iter().map(|it| it.entry.close.is_cancelled()).collect();
        assert_eq!(evicted, [false, false, true]);
        let _third = registry.admit(API_SERVER).unwrap();
        assert!(idle.entry.close.is_cancelled() && !second.entry.close.is_cancelled(), "it has most now");
    }
}
