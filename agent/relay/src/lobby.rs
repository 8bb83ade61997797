//! Connections that have not shown who they are. Their number is bounded. More wait in the backlog of the port, so that agents
//! that come back at once are served in turn; but a connection that takes long makes room. One address has a part of the places,
//! so a Pod that fills them keeps nobody else waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jobset_program::log_limit;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use crate::limits::{UNAUTHENTICATED, UNAUTHENTICATED_AGE, UNAUTHENTICATED_OF_ADDRESS};

/// Pause after a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection that has been accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) place: Place,
}

/// Accepts connections of one port for as long as this runs, in turn with those that have not shown who they are. Closes those of
/// an address that has too many, and tells `refused`.
pub(crate) async fn accept(
    listener: TcpListener,
    mut serve: impl FnMut(Accepted),
    mut refused: impl FnMut(SocketAddr),
) {
    let lobby = Lobby::new(UNAUTHENTICATED, UNAUTHENTICATED_OF_ADDRESS, UNAUTHENTICATED_AGE);
    loop {
        lobby.room().await;
        match listener.accept().await {
            Ok((stream, peer)) => match lobby.enter(peer.ip()) {
                Some(place) => serve(Accepted { stream, peer, place }),
                None => refused(peer),
            },
            Err(error) => {
                if let Some(suppressed) = log_limit::permit("accept") {
                    warn!(%error, suppressed, "cannot accept a connection");
                }
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
    of_address: usize,
    /// Age at which a connection can be evicted.
    age: Duration,
    taken: BTreeMap<u64, Taken>,
    /// The places of each address.
    addresses: HashMap<IpAddr, BTreeSet<u64>>,
    numbers: u64,
}

/// A place that is taken.
#[derive(Debug)]
struct Taken {
    address: IpAddr,
    since: Instant,
    evicted: Arc<Notify>,
}

impl Places {
    /// Evicts the oldest connection if there is no room and it is old enough. If there is no room still: when it will be.
    fn make_room(&mut self, now: Instant) -> Option<Instant> {
        if self.taken.len() < self.most {
            return None;
        }
        let (number, oldest) = self.taken.first_key_value()?;
        let (number, until) = (*number, oldest.since + self.age);
        if now < until {
            return Some(until);
        }
        self.evict(number);
        None
    }

    /// Takes a place, unless the address has as many as it may, and none of them is old enough to make room.
    fn take(&mut self, address: IpAddr, now: Instant) -> Option<(u64, Arc<Notify>)> {
        let held = self.addresses.get(&address);
        let oldest = held.filter(|held| held.len() >= self.of_address).and_then(BTreeSet::first).copied();
        if let Some(oldest) = oldest {
            if self.taken.get(&oldest).is_some_and(|taken| now < taken.since + self.age) {
                return None;
            }
            self.evict(oldest);
        }
        self.numbers += 1;
        let evicted = Arc::<Notify>::default();
        self.taken.insert(self.numbers, Taken { address, since: now, evicted: Arc::clone(&evicted) });
        self.addresses.entry(address).or_default().insert(self.numbers);
        Some((self.numbers, evicted))
    }

    fn evict(&mut self, number: u64) {
        if let Some(taken) = self.leave(number) {
            taken.evicted.notify_one();
        }
    }

    fn leave(&mut self, number: u64) -> Option<Taken> {
        let taken = self.taken.remove(&number)?;
        if let Some(held) = self.addresses.get_mut(&taken.address) {
            held.remove(&number);
            if held.is_empty() {
                self.addresses.remove(&taken.address);
            }
        }
        Some(taken)
    }
}

impl Lobby {
    pub(crate) fn new(most: usize, of_address: usize, age: Duration) -> Arc<Self> {
        let (taken, addresses) = (BTreeMap::new(), HashMap::new());
        let places = Places { most, of_address, age, taken, addresses, numbers: 0 };
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

    /// Takes a place for a connection of this address that has been accepted, unless the address has too many.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let (number, evicted) = self.places().take(address, Instant::now())?;
        Some(Place { lobby: Arc::clone(self), number, evicted })
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
        self.lobby.places().leave(self.number);
        self.lobby.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::FutureExt as _;

    use super::*;

    const AGE: Duration = Duration::from_secs(1);
    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn lobby(most: usize) -> Arc<Lobby> {
        Lobby::new(most, 2, AGE)
    }

    #[tokio::test(start_paused = true)]
    async fn one_more_waits_until_another_leaves() {
        let lobby = lobby(2);
        let (one, _two) = (lobby.enter(ONE), lobby.enter(ONE));
        assert!(lobby.room().now_or_never().is_none());
        drop(one);
        assert!(lobby.room().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_makes_room_once_it_is_old() {
        let lobby = lobby(2);
        let (one, two) = (lobby.enter(ONE).unwrap(), lobby.enter(ONE).unwrap());
        let begin = Instant::now();
        lobby.room().await;
        assert_eq!(begin.elapsed(), AGE);
        assert!(one.evicted().now_or_never().is_some());
        assert!(two.evicted().now_or_never().is_none());
        let _three = lobby.enter(OTHER);
        drop(one);
        assert_eq!(lobby.places().taken.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn address_that_has_its_part_makes_nobody_else_wait() {
        let lobby = lobby(4);
        let (one, two) = (lobby.enter(ONE).unwrap(), lobby.enter(ONE).unwrap());
        assert!(lobby.enter(ONE).is_none());
        assert!(lobby.room().now_or_never().is_some());
        let other = lobby.enter(OTHER).unwrap();
        tokio::time::advance(AGE).await;
        let three = lobby.enter(ONE).unwrap();
        assert!(one.evicted().now_or_never().is_some(), "its own oldest has made room");
        drop((one, two, three, other));
        let places = lobby.places();
        assert_eq!((places.taken.len(), places.addresses.len()), (0, 0));
    }
}
