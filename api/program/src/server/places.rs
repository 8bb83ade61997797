//! Who makes room: the oldest of the party that holds most. Pure: it is told who comes, changes and leaves.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::party::Party;

/// How much there is of something, connections or bytes, and who is spared.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub total: usize,
    /// What one network may hold. Where that is less than all, whoever exceeds it does not wait, so that others need not.
    pub of_network: usize,
    /// Age at which a holder makes room for its own party.
    pub age_for_own: Duration,
    /// Age at which a holder makes room for a party that holds less.
    pub age_for_others: Duration,
}

impl Size {
    /// So much, of which one network may hold all, and whoever is first makes room at any age.
    pub fn of(total: usize) -> Self {
        Self { total, of_network: total, age_for_own: Duration::ZERO, age_for_others: Duration::ZERO }
    }
}

/// What a holder has shown so far. Of one party, the first rank makes room first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Nothing yet.
    Stranger,
    /// It was served, and waits.
    Known,
    /// It is being served: it makes room only for another party.
    Served,
    /// It makes room for nobody.
    Fixed,
}

/// The decision about somebody who needs room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Free,
    /// This holder makes room.
    Evict(Evicted),
    /// Somebody will be old enough to make room then, if nobody leaves before.
    Wait(Instant),
    /// Its own network holds what it may, or most, and none of it makes room.
    Rejected,
}

/// The holder that makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    pub id: u64,
    /// Whether it makes room for its own party.
    pub for_own: bool,
}

/// The holders by number, with a value for each.
///
/// Whoever needs room gets that of the party that would hold most then, itself included: so nobody makes room for a party that
/// would hold as much. Networks are compared first, then the namespaces of one network.
#[derive(Debug)]
pub struct Places<T> {
    size: Size,
    taken: usize,
    /// Numbers given so far.
    turns: u64,
    holders: HashMap<u64, Holder<T>>,
    networks: HashMap<IpAddr, Network>,
}

#[derive(Debug)]
struct Holder<T> {
    party: Party,
    weight: usize,
    rank: Rank,
    /// Increases with each rank that is given, so that it orders those of the same rank.
    turn: u64,
    /// When it got its rank.
    since: Instant,
    value: T,
}

#[derive(Debug, Default)]
struct Network {
    weight: usize,
    namespaces: HashMap<Arc<str>, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    weight: usize,
    holders: usize,
    /// Numbers of its holders in the order in which they make room, with the time since when they have their rank.
    order: BTreeMap<(Rank, u64), (u64, Instant)>,
}

/// A holder that may make room.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u64,
    turn: (Rank, u64),
    since: Instant,
    for_own: bool,
}

impl Network {
    /// The first holder of its heaviest namespace.
    fn first(&self, last: Rank, except: Option<u64>) -> Option<Candidate> {
        heaviest(0, self.namespaces.values().map(|it| (it.weight, false, it.first(last, except))))
    }
}

impl Namespace {
    /// The first holder that makes room, of those up to this rank.
    fn first(&self, last: Rank, except: Option<u64>) -> Option<Candidate> {
        let mut holders = self.order.range(..=(last, u64::MAX));
        let (turn, (id, since)) = holders.find(|(_, (id, _))| Some(*id) != except)?;
        Some(Candidate { id: *id, turn: *turn, since: *since, for_own: false })
    }
}

/// The candidate of the group that holds most, of those that hold so much at least. Of groups that hold the same, the own one comes
/// first, and then that of the candidate with the first rank, and of these of the oldest.
fn heaviest(least: usize, groups: impl Iterator<Item = (usize, bool, Option<Candidate>)>) -> Option<Candidate> {
    let groups = groups.filter_map(|(weight, is_own, first)| Some((weight, is_own, first?)));
    let groups = groups.filter(|(weight, is_own, _)| *is_own || *weight >= least);
    groups.max_by_key(|(weight, is_own, first)| (*weight, *is_own, Reverse(first.turn))).map(|(_, _, first)| first)
}

impl<T> Places<T> {
    /// Nobody holds anything.
    pub fn new(size: Size) -> Self {
        Self { size, taken: 0, turns: 0, holders: HashMap::new(), networks: HashMap::new() }
    }

    /// Whether this party gets `more`, and who makes room for it: anybody but `id`, which is the holder that needs it.
    pub fn room(&self, party: &Party, id: Option<u64>, more: usize, now: Instant) -> Room {
        let own = self.networks.get(&party.network);
        let weight = own.map_or(0, |own| own.weight) + more;
        let is_over = weight > self.size.of_network && self.size.of_network < self.size.total;
        if !is_over && self.taken + more <= self.size.total {
            return Room::Free;
        }
        let candidate = if is_over {
            own.and_then(|own| own.first(Rank::Known, id)).map(|first| Candidate { for_own: true, ..first })
        } else {
            self.of_heaviest(party, id, more).or_else(|| self.oldest_stranger(id))
        };
        let Some(Candidate { id, since, for_own, .. }) = candidate else { return Room::Rejected };
        let old = since + if for_own { self.size.age_for_own } else { self.size.age_for_others };
        match old {
            old if old <= now => Room::Evict(Evicted { id, for_own }),
            _ if is_over => Room::Rejected,
            old => Room::Wait(old),
        }
    }

    /// The first holder of the network and namespace that would hold most, if this party got `more`.
    fn of_heaviest(&self, party: &Party, id: Option<u64>, more: usize) -> Option<Candidate> {
        let none = Network::default();
        let own = self.networks.get(&party.network).unwrap_or(&none);
        let least = own.namespaces.get(&party.namespace).map_or(0, |it| it.weight) + more;
        let namespaces = own.namespaces.iter().map(|(name, it)| {
            let is_own = *name == party.namespace;
            let first = it.first(if is_own { Rank::Known } else { Rank::Served }, id);
            (it.weight + if is_own { more } else { 0 }, is_own, first.map(|it| Candidate { for_own: is_own, ..it }))
        });
        let of_own = (own.weight + more, true, heaviest(least, namespaces));
        let others = self.networks.iter().filter(|(network, _)| **network != party.network);
        let others = others.map(|(_, it)| (it.weight, false, it.first(Rank::Served, id)));
        heaviest(own.weight + more, others.chain([of_own]))
    }

    /// The oldest of all that have shown nothing: many parties of one each keep nobody out for long.
    fn oldest_stranger(&self, id: Option<u64>) -> Option<Candidate> {
        let namespaces = self.networks.values().flat_map(|it| it.namespaces.values());
        let strangers = namespaces.filter_map(|it| it.first(Rank::Stranger, id));
        strangers.min_by_key(|it| it.turn).map(|it| Candidate { for_own: true, ..it })
    }

    /// One more holder, a stranger.
    pub fn enter(&mut self, party: Party, weight: usize, value: T, now: Instant) -> u64 {
        self.turns += 1;
        let id = self.turns;
        self.put(id, Holder { party, weight, rank: Rank::Stranger, turn: id, since: now, value });
        id
    }

    /// Its value; `None` if it has made room or left before.
    pub fn leave(&mut self, id: u64) -> Option<T> {
        self.take(id).map(|holder| holder.value)
    }

    pub fn rank(&mut self, id: u64, rank: Rank, now: Instant) {
        self.turns += 1;
        let turn = self.turns;
        self.change(id, |holder| (holder.rank, holder.turn, holder.since) = (rank, turn, now));
    }

    /// How much a holder holds; `None` if it has left.
    pub fn weight(&self, id: u64) -> Option<usize> {
        self.holders.get(&id).map(|holder| holder.weight)
    }

    /// A holder holds so much from now on.
    pub fn weigh(&mut self, id: u64, weight: usize) {
        self.change(id, |holder| holder.weight = weight);
    }

    /// A holder turns out to be of another party.
    pub fn rename(&mut self, id: u64, party: Party) {
        self.change(id, |holder| holder.party = party);
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut Holder<T>)) {
        if let Some(mut holder) = self.take(id) {
            change(&mut holder);
            self.put(id, holder);
        }
    }

    fn put(&mut self, id: u64, holder: Holder<T>) {
        self.taken += holder.weight;
        let network = self.networks.entry(holder.party.network).or_default();
        network.weight += holder.weight;
        let namespace = network.namespaces.entry(Arc::clone(&holder.party.namespace)).or_default();
        namespace.weight += holder.weight;
        namespace.holders += 1;
        if holder.rank < Rank::Fixed {
            namespace.order.insert((holder.rank, holder.turn), (id, holder.since));
        }
        self.holders.insert(id, holder);
    }

    fn take(&mut self, id: u64) -> Option<Holder<T>> {
        let holder = self.holders.remove(&id)?;
        self.taken -= holder.weight;
        if let Entry::Occupied(mut network) = self.networks.entry(holder.party.network) {
            network.get_mut().weight -= holder.weight;
            if let Entry::Occupied(mut namespace) =
                network.get_mut().namespaces.entry(Arc::clone(&holder.party.namespace))
            {
                let it = namespace.get_mut();
                it.weight -= holder.weight;
                it.holders -= 1;
                it.order.remove(&(holder.rank, holder.turn));
                if it.holders == 0 {
                    namespace.remove();
                }
            }
            if network.get().namespaces.is_empty() {
                network.remove();
            }
        }
        Some(holder)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rstest::rstest;

    use super::*;

    fn party(network: u8, namespace: &str) -> Party {
        Party::of(Ipv4Addr::new(10, 0, 0, network).into()).with_namespace(namespace)
    }

    /// Places with holders of these networks, namespaces and weights, whose numbers count from 1.
    fn places(size: Size, holders: &[(u8, &str, usize)]) -> (Places<()>, Instant) {
        let (mut places, now) = (Places::new(size), Instant::now());
        for (network, namespace, weight) in holders {
            places.enter(party(*network, namespace), *weight, (), now);
        }
        (places, now)
    }

    fn evicts(id: u64, for_own: bool) -> Room {
        Room::Evict(Evicted { id, for_own })
    }

    #[rstest]
    #[case::there_is_room(&[(1, "a", 3)], Room::Free)]
    #[case::its_own_network_holds_most(&[(2, "a", 1), (1, "a", 1), (1, "a", 1), (2, "a", 1)], evicts(2, true))]
    #[case::another_network_holds_most(&[(1, "a", 1), (2, "a", 1), (2, "a", 1), (2, "a", 1)], evicts(2, false))]
    #[case::another_would_hold_as_much(&[(1, "a", 1), (2, "a", 2), (3, "a", 1)], evicts(1, true))]
    #[case::all_hold_as_much_and_it_has_nobody(&[(2, "a", 1), (3, "a", 1), (4, "a", 1), (5, "a", 1)], evicts(1, false))]
    #[case::another_namespace_of_its_network(&[(1, "a", 1), (1, "b", 1), (1, "b", 2)], evicts(2, false))]
    #[case::heaviest_namespace_of_heaviest_network(&[(3, "a", 1), (2, "a", 1), (2, "b", 2)], evicts(3, false))]
    #[case::network_that_names_many_namespaces(&[(1, "b", 1), (2, "b", 1), (2, "c", 1), (2, "d", 1)], evicts(2, false))]
    fn oldest_of_party_with_most_makes_room(#[case] holders: &[(u8, &str, usize)], #[case] expected: Room) {
        let (places, now) = places(Size::of(4), holders);
        assert_eq!(places.room(&party(1, "a"), None, 1, now), expected);
    }

    #[test]
    fn heavy_newcomer_displaces_oldest_stranger_and_nobody_served() {
        let (mut places, now) = places(Size::of(4), &[(2, "a", 2), (3, "a", 1), (4, "a", 1)]);
        assert_eq!(places.room(&party(1, "a"), None, 3, now), evicts(1, true));
        places.rank(1, Rank::Known, now);
        assert_eq!(places.room(&party(1, "a"), None, 3, now), evicts(2, true));
        places.rank(2, Rank::Known, now);
        places.rank(3, Rank::Fixed, now);
        assert_eq!(places.room(&party(1, "a"), None, 3, now), Room::Rejected);
    }

    #[test]
    fn of_parties_that_hold_as_much_strangers_make_room_first() {
        let (mut places, now) = places(Size::of(4), &[(2, "", 1), (3, "", 1), (4, "", 1), (5, "", 1)]);
        places.rank(3, Rank::Served, now);
        places.rank(2, Rank::Known, now);
        for expected in [1, 4, 2, 3] {
            assert_eq!(places.room(&party(1, ""), None, 1, now), evicts(expected, false));
            places.leave(expected);
            let id = places.enter(party(6, ""), 1, (), now);
            places.rank(id, Rank::Fixed, now);
        }
    }

    #[test]
    fn strangers_make_room_first_then_the_known_by_last_request() {
        let (mut places, now) = places(Size::of(4), &[(1, "", 1), (1, "", 1), (1, "", 1), (1, "", 1)]);
        let first = |places: &Places<()>| places.room(&party(1, ""), None, 1, now);
        places.rank(1, Rank::Known, now);
        places.rank(2, Rank::Known, now);
        assert_eq!(first(&places), evicts(3, true));
        places.rank(4, Rank::Known, now);
        places.rank(3, Rank::Known, now);
        places.rank(1, Rank::Known, now);
        assert_eq!(first(&places), evicts(2, true));
    }

    #[test]
    fn served_holder_makes_room_for_others_fixed_for_nobody() {
        let (mut places, now) = places(Size::of(4), &[(1, "", 1), (1, "", 1), (1, "", 1), (1, "", 1)]);
        (1..=4).for_each(|id| places.rank(id, Rank::Served, now));
        assert_eq!(places.room(&party(1, ""), None, 1, now), Room::Rejected);
        assert_eq!(places.room(&party(2, ""), None, 1, now), evicts(1, false));
        (1..=4).for_each(|id| places.rank(id, Rank::Fixed, now));
        assert_eq!(places.room(&party(2, ""), None, 1, now), Room::Rejected);
    }

    #[test]
    fn young_holder_makes_room_once_old_enough_for_party() {
        let size = Size { age_for_own: Duration::from_secs(2), age_for_others: Duration::from_secs(1), ..Size::of(4) };
        let (places, now) = places(size, &[(1, "", 1), (1, "", 1), (1, "", 1), (1, "", 1)]);
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(places.room(&party(1, ""), None, 1, now), Room::Wait(at(2)));
        assert_eq!(places.room(&party(2, ""), None, 1, now), Room::Wait(at(1)));
        assert_eq!(places.room(&party(2, ""), None, 1, at(1)), evicts(1, false));
        assert_eq!(places.room(&party(1, ""), None, 1, at(2)), evicts(1, true));
    }

    #[test]
    fn network_above_share_is_rejected_until_its_oldest_is_old() {
        let size = Size { of_network: 2, age_for_own: Duration::from_secs(2), ..Size::of(4) };
        let (places, now) = places(size, &[(2, "", 1), (1, "", 1), (1, "", 1)]);
        assert_eq!(places.room(&party(1, ""), None, 1, now), Room::Rejected);
        assert_eq!(places.room(&party(1, ""), None, 1, now + Duration::from_secs(2)), evicts(2, true));
        assert_eq!(places.room(&party(2, ""), None, 1, now), Room::Free);
    }

    #[test]
    fn holder_that_grows_does_not_make_room_for_itself() {
        let (mut places, now) = places(Size::of(4), &[(1, "", 2), (1, "", 1)]);
        places.weigh(2, 2);
        assert_eq!(places.room(&party(1, ""), Some(1), 1, now), evicts(2, true));
        places.leave(2);
        assert_eq!(places.room(&party(1, ""), Some(1), 3, now), Room::Rejected);
    }

    #[test]
    fn holders_that_change_and_leave_free_all_that_they_held() {
        let (mut places, now) = places(Size::of(4), &[(1, "", 1), (1, "", 1)]);
        places.rename(1, party(1, "a"));
        places.weigh(1, 3);
        assert_eq!(places.room(&party(1, ""), None, 1, now), evicts(1, false));
        assert_eq!((places.leave(1), places.leave(1)), (Some(()), None));
        places.weigh(1, 7);
        places.leave(2);
        assert!(places.taken == 0 && places.holders.is_empty() && places.networks.is_empty(), "{places:?}");
    }
}
