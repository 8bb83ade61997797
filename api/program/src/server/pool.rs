//! [`Places`] that tasks share.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::party::Party;
use super::places::{Evicted, Places, Rank, Room, Size};
use crate::lock;

/// Places that tasks share.
#[derive(Debug)]
pub struct Pool<T> {
    places: Mutex<Places<Arc<Slot<T>>>>,
    /// Notified when somebody leaves.
    left: Notify,
}

/// A place with the value that its holder keeps in it. Whoever makes room loses the value at once.
#[derive(Debug)]
pub struct Place<T> {
    pool: Arc<Pool<T>>,
    id: u64,
    slot: Arc<Slot<T>>,
}

#[derive(Debug)]
struct Slot<T> {
    value: Mutex<Result<T, Lost>>,
    lost: Notify,
}

/// A place was lost to somebody who needed room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Whether that was somebody of the same party, and not one that held less.
    pub to_own: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// There may be room then, if nobody leaves before.
    Until(Instant),
    /// Nobody makes room for this party.
    Rejected,
}

impl<T: Default> Pool<T> {
    /// Nobody has a place.
    pub fn new(size: Size) -> Arc<Self> {
        Arc::new(Self { places: Mutex::new(Places::new(size)), left: Notify::new() })
    }

    /// A place of this weight, for a stranger. Others may lose theirs.
    pub fn enter(self: &Arc<Self>, party: &Party, weight: usize, value: T) -> Result<Place<T>, Full> {
        let (mut places, now) = (self.places(), Instant::now());
        make_room(&mut places, party, None, weight, now)?;
        let slot = Arc::new(Slot { value: Mutex::new(Ok(value)), lost: Notify::new() });
        let id = places.enter(party.clone(), weight, Arc::clone(&slot), now);
        Ok(Place { pool: Arc::clone(self), id, slot })
    }

    /// The same with an empty value, as soon as there is room; `None` if nobody makes room for this party.
    pub async fn wait(self: &Arc<Self>, party: &Party, weight: usize) -> Option<Place<T>> {
        loop {
            match self.enter(party, weight, T::default()) {
                Ok(place) => return Some(place),
                Err(Full::Rejected) => return None,
                Err(Full::Until(until)) => tokio::select! {
                    () = self.left.notified() => {}
                    () = sleep_until(until) => {}
                },
            }
        }
    }
}

impl<T> Pool<T> {
    fn places(&self) -> MutexGuard<'_, Places<Arc<Slot<T>>>> {
        lock(&self.places)
    }
}

fn make_room<T>(
    places: &mut Places<Arc<Slot<T>>>,
    party: &Party,
    id: Option<u64>,
    more: usize,
    now: Instant,
) -> Result<(), Full> {
    loop {
        match places.room(party, id, more, now) {
            Room::Free => return Ok(()),
            Room::Evict(Evicted { id, for_own }) => {
                if let Some(slot) = places.leave(id) {
                    *lock(&slot.value) = Err(Lost { to_own: for_own });
                    slot.lost.notify_one();
                }
            }
            Room::Wait(until) => return Err(Full::Until(until)),
            Room::Rejected => return Err(Full::Rejected),
        }
    }
}

impl<T: Default> Place<T> {
    /// Resolves when the place is lost.
    pub async fn lost(&self) -> Lost {
        loop {
            if let Err(lost) = &*lock(&self.slot.value) {
                return *lost;
            }
            self.slot.lost.notified().await;
        }
    }

    /// What is done with the value.
    pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> Result<R, Lost> {
        lock(&self.slot.value).as_mut().map(act).map_err(|lost| *lost)
    }

    /// The value, to work on, with an empty one in its stead. Meanwhile the place makes no room.
    pub fn take(&self) -> Result<T, Lost> {
        self.rank(Rank::Fixed);
        self.with(std::mem::take)
    }

    /// Puts a value into the place, and gives it this rank.
    pub fn put(&self, value: T, rank: Rank) -> Result<(), Lost> {
        self.with(|it| *it = value)?;
        self.rank(rank);
        Ok(())
    }

    pub fn rank(&self, rank: Rank) {
        self.pool.places().rank(self.id, rank, Instant::now());
    }

    /// Changes the weight. Others may lose their places.
    pub fn resize(&self, party: &Party, weight: usize) -> Result<(), Full> {
        let mut places = self.pool.places();
        let more = weight.saturating_sub(places.weight(self.id).unwrap_or(weight));
        make_room(&mut places, party, Some(self.id), more, Instant::now())?;
        places.weigh(self.id, weight);
        Ok(())
    }

    /// Counts the place for another party.
    pub fn rename(&self, party: &Party) {
        self.pool.places().rename(self.id, party.clone());
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        self.pool.places().leave(self.id);
        self.pool.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::FutureExt as _;

    use super::*;

    fn party(network: u8) -> Party {
        Party::of(Ipv4Addr::new(10, 0, 0, network).into())
    }

    fn pool() -> Arc<Pool<Vec<u8>>> {
        Pool::new(Size::of(2))
    }

    #[tokio::test]
    async fn place_that_makes_room_loses_value_and_tells_its_holder() {
        let pool = pool();
        let [first, second] = [1, 1].map(|network| pool.enter(&party(network), 1, vec![7]).unwrap());
        assert_eq!(first.lost().now_or_never(), None);
        let third = pool.enter(&party(2), 1, Vec::new()).unwrap();
        let lost = Lost { to_own: false };
        assert_eq!((first.with(|value| value.len()), second.with(|value| value.len())), (Err(lost), Ok(1)));
        assert_eq!((first.lost().await, first.take(), first.put(vec![8], Rank::Known)), (lost, Err(lost), Err(lost)));
        drop((first, second, third));
        assert!(pool.enter(&party(1), 2, Vec::new()).is_ok(), "a place that was lost is given back once");
    }

    #[test]
    fn taken_value_makes_no_room_until_put_back() {
        let pool = pool();
        let place = pool.enter(&party(1), 2, vec![7]).unwrap();
        let value = place.take().unwrap();
        assert_eq!(pool.enter(&party(2), 1, Vec::new()).unwrap_err(), Full::Rejected);
        place.put(value, Rank::Known).unwrap();
        assert!(pool.enter(&party(2), 1, Vec::new()).is_ok());
    }

    #[test]
    fn place_grows_by_what_others_lose_and_shrinks_for_them() {
        let pool = pool();
        let [first, second] = [1, 2].map(|network| pool.enter(&party(network), 1, Vec::new()).unwrap());
        second.rank(Rank::Known);
        assert_eq!(first.resize(&party(1), 2), Err(Full::Rejected), "it would hold more than any other");
        first.resize(&party(1), 0).unwrap();
        second.resize(&party(2), 2).unwrap();
        assert_eq!(pool.enter(&party(1), 1, Vec::new()).map(drop), Ok(()));
        assert!(second.with(|_| ()).is_err());
    }
}
