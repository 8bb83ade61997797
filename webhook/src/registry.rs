//! The open connections of a port, and which of them makes room when there are too many.

mod state;

use std::collections::HashMap;
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
    /// After which those that send or take slowly count for less than idle ones.
    patience: Duration,
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
    /// A head has begun, or an answer: the deadline may be an earlier one.
    begun: Notify,
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

/// A request in flight, until its answer has been taken.
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
    pub(crate) fn new(max: u32, patience: Duration) -> Self {
        Self { max: max as usize, patience, open: Mutex::default() }
    }

    /// A place for a new connection, if need be that of another, which is told to end; `None` where all have
    /// reviews in progress.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Connection> {
        let (mut open, now) = (lock(&self.open), Instant::now());
        if open.connections.len() >= self.max {
            let phases = open.connections.iter().map(|(id, entry)| (*id, lock(&entry.state).phase()));
            let victim = victim(phases, self.patience, now)?;
            open.connections.remove(&victim).inspect(|entry| entry.close.cancel());
        }
        let id = open.next;
        open.next = id.wrapping_add(1);
        let entry = Arc::new(Entry {
            state: Mutex::new(State::new(now)),
            asked: CancellationToken::new(),
            begun: Notify::new(),
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

    /// See [`State::end_of_work`].
    pub(crate) fn end_of_work(&self, linger: Duration) -> Option<Instant> {
        lock(&self.entry.state).end_of_work(linger)
    }

    /// See [`State::end_of_all`].
    pub(crate) fn end_of_all(&self, linger: Duration) -> Option<Instant> {
        lock(&self.entry.state).end_of_all(linger)
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

    /// Resolves each time when a head or an answer begins.
    pub(crate) async fn begun(&self) {
        self.entry.begun.notified().await;
    }

    /// The rest of a head is awaited from now on, unless these bytes belong to something that is.
    pub(crate) fn hear(&self) {
        if lock(&self.entry.state).hear(Instant::now()) {
            self.entry.begun.notify_one();
        }
    }

    /// Has a request in flight until the first is dropped, of which something is still to come until the second is.
    pub(crate) fn begin(&self) -> (Request, Receiving) {
        let id = lock(&self.entry.state).begin(Instant::now());
        self.entry.asked.cancel();
        (Request { connection: self.clone(), id }, Receiving { entry: Arc::clone(&self.entry), id })
    }
}

impl Request {
    /// It is answered; from now on the answer goes.
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

/// What is locked here is whole at every moment, whoever panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_too_many_displaces_one_that_can_be_missed_and_is_refused_where_none_can() {
        let registry = Arc::new(Registry::new(2, Duration::from_secs(1)));
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
