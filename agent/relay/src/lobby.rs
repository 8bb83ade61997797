//! Connections that have not shown who they are. Their number is bounded. More wait in the backlog of the port, so that agents
//! that come back at once are served in turn; but a connection that takes long makes room.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use crate::limits::{UNAUTHENTICATED, UNAUTHENTICATED_AGE};

/// Pause after a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection that has been accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) place: Place,
}

/// Accepts connections of one port for as long as this runs, in turn with those that have not shown who they are.
pub(crate) async fn accept(listener: TcpListener, mut serve: impl FnMut(Accepted)) {
    let lobby = Lobby::new(UNAUTHENTICATED, UNAUTHENTICATED_AGE);
    loop {
        lobby.room().await;
        match listener.accept().await {
            Ok((stream, peer)) => serve(Accepted { stream, peer, place: lobby.enter() }),
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The connections of one port.
#[derive(Debug)]
pub(crate) struct Lobby {
    places: Mutex<Places>,
    left: Notify,
}

/// The place of one connection, which it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    lobby: Arc<Lobby>,
    number: u64,
    evicted: Arc<Notify>,
}

#[derive(Debug)]
struct Places {
    most: usize,
    /// Age at which a connection can be evicted.
    age: Duration,
    taken: BTreeMap<u64, (Instant, Arc<Notify>)>,
    numbers: u64,
}

impl Places {
    /// Evicts the oldest connection if there is no room and it is old enough. If there is no room still: when it will be.
    fn make_room(&mut self, now: Instant) -> Option<Instant> {
        if self.taken.len() < self.most {
            return None;
        }
        let oldest = self.taken.first_entry()?;
        let until = oldest.get().0 + self.age;
        if now < until {
            return Some(until);
        }
        oldest.remove().1.notify_one();
        None
    }

    fn take(&mut self, now: Instant) -> (u64, Arc<Notify>) {
        self.numbers += 1;
        let evicted = Arc::<Notify>::default();
        self.taken.insert(self.numbers, (now, Arc::clone(&evicted)));
        (self.numbers, evicted)
    }
}

impl Lobby {
    pub(crate) fn new(most: usize, age: Duration) -> Arc<Self> {
        let places = Places { most, age, taken: BTreeMap::new(), numbers: 0 };
        Arc::new(Self { places: Mutex::new(places), left: Notify::new() })
    }

    /// Waits until there is room for one more.
    pub(crate) async fn room(&self) {
        loop {
            let until = self.places().make_room(Instant::now());
            let Some(until) = until else { return };
            tokio::select! {
                () = self.left.notified() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Takes a place for a connection that has been accepted.
    pub(crate) fn enter(self: &Arc<Self>) -> Place {
        let (number, evicted) = self.places().take(Instant::now());
        Place { lobby: Arc::clone(self), number, evicted }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits until the connection has to make room.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lobby.places().taken.remove(&self.number);
        self.lobby.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const AGE: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn one_more_waits_until_another_leaves() {
        let lobby = Lobby::new(2, AGE);
        let (one, _two) = (lobby.enter(), lobby.enter());
        assert!(lobby.room().now_or_never().is_none());
        drop(one);
        assert!(lobby.room().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_makes_room_once_it_is_old() {
        let lobby = Lobby::new(2, AGE);
        let (one, two) = (lobby.enter(), lobby.enter());
        let begin = Instant::now();
        lobby.room().await;
        assert_eq!(begin.elapsed(), AGE);
        assert!(one.evicted().now_or_never().is_some());
        assert!(two.evicted().now_or_never().is_none());
        let _three = lobby.enter();
        drop(one);
        assert_eq!(lobby.places().taken.len(), 2);
    }
}
