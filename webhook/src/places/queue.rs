//! Who gets the next place. Pure: it is told who comes and who leaves, and says who is next.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use jobset_program::server::party::Party;

/// A number of places, those that hold one, and those that wait for one.
///
/// A namespace gets one more place as long as it holds fewer than are free. So one namespace alone gets half of them, and the
/// next one finds a free place however long the first keeps its own. Among those that may have a place, addresses take turns;
/// for each address its namespaces; and within a namespace, who came first is first.
#[derive(Debug)]
pub(super) struct Queue<T> {
    free: usize,
    entered: u64,
    /// Places held by namespaces, by any address. None is 0.
    held: HashMap<Arc<str>, usize>,
    waiting: Ring<IpAddr, Ring<Arc<str>, BTreeMap<u64, T>>>,
}

/// What identifies one that waits for a place or holds it.
#[derive(Debug)]
pub(super) struct Ticket {
    party: Party,
    number: u64,
}

impl<T> Queue<T> {
    pub(super) fn new(places: usize) -> Self {
        Self { free: places, entered: 0, held: HashMap::new(), waiting: Ring::default() }
    }

    /// Lets one more wait for a place.
    pub(super) fn enter(&mut self, party: Party, waiter: T) -> Ticket {
        let number = self.entered;
        self.entered += 1;
        self.waiting.join(&party.network).join(&party.namespace).insert(number, waiter);
        Ticket { party, number }
    }

    /// Gives a place to the next one that waits; `None` if nobody may have a place.
    pub(super) fn next(&mut self) -> Option<T> {
        let may = |namespace: &Arc<str>| self.held.get(namespace).copied().unwrap_or(0) < self.free;
        let next = self.waiting.iter().find_map(|(address, namespaces)| {
            let (namespace, line) = namespaces.iter().find(|(namespace, _)| may(namespace))?;
            let party = Party { network: *address, namespace: Arc::clone(namespace) };
            Some(Ticket { party, number: *line.first_key_value()?.0 })
        })?;
        let waiter = self.take_out(&next)?;
        let Party { network: address, namespace } = next.party;
        if let Some(namespaces) = self.waiting.get_mut(&address) {
            namespaces.move_to_end(&namespace);
        }
        self.waiting.move_to_end(&address);
        self.free -= 1;
        *self.held.entry(namespace).or_default() += 1;
        Some(waiter)
    }

    /// One no longer waits, or gives its place back.
    pub(super) fn leave(&mut self, ticket: &Ticket) {
        if self.take_out(ticket).is_some() {
            return;
        }
        self.free += 1;
        match self.held.get_mut(&ticket.party.namespace) {
            Some(held) if *held > 1 => *held -= 1,
            _ => drop(self.held.remove(&ticket.party.namespace)),
        }
    }

    fn take_out(&mut self, Ticket { party, number }: &Ticket) -> Option<T> {
        let namespaces = self.waiting.get_mut(&party.network)?;
        let line = namespaces.get_mut(&party.namespace)?;
        let waiter = line.remove(number)?;
        if line.is_empty() {
            namespaces.remove(&party.namespace);
        }
        if namespaces.is_empty() {
            self.waiting.remove(&party.network);
        }
        Some(waiter)
    }
}

/// Values by key, in the order of their turns.
#[derive(Debug)]
struct Ring<K, V> {
    turns: u64,
    order: BTreeMap<u64, K>,
    values: HashMap<K, (u64, V)>,
}

impl<K, V> Default for Ring<K, V> {
    fn default() -> Self {
        Self { turns: 0, order: BTreeMap::new(), values: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, V: Default> Ring<K, V> {
    /// The value of this key. A new key has the last turn.
    fn join(&mut self, key: &K) -> &mut V {
        let (turns, order) = (&mut self.turns, &mut self.order);
        let (_, value) = self.values.entry(key.clone()).or_insert_with(|| {
            *turns += 1;
            order.insert(*turns, key.clone());
            (*turns, V::default())
        });
        value
    }

    fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.order.values().filter_map(|key| self.values.get(key).map(|(_, value)| (key, value)))
    }

    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.values.get_mut(key).map(|(_, value)| value)
    }

    fn move_to_end(&mut self, key: &K) {
        if let Some((turn, _)) = self.values.get_mut(key) {
            self.order.remove(turn);
            self.turns += 1;
            *turn = self.turns;
            self.order.insert(self.turns, key.clone());
        }
    }

    fn remove(&mut self, key: &K) {
        if let Some((turn, _)) = self.values.remove(key) {
            self.order.remove(&turn);
        }
    }

    fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const API_SERVER: u8 = 1;
    const STRANGER: u8 = 2;

    fn party(address: u8, namespace: &str) -> Party {
        Party::of(Ipv4Addr::new(10, 0, 0, address).into()).with_namespace(namespace)
    }

    /// A queue in which reviews of these namespaces wait, each with its number as its name.
    fn queue(places: usize, waiting: &[(u8, &str)]) -> (Queue<usize>, Vec<Ticket>) {
        let mut queue = Queue::new(places);
        let enter =
            |(number, (address, namespace)): (usize, &(u8, &str))| queue.enter(party(*address, namespace), number);
        let tickets = waiting.iter().enumerate().map(enter).collect();
        (queue, tickets)
    }

    fn given(queue: &mut Queue<usize>) -> Vec<usize> {
        std::iter::from_fn(|| queue.next()).collect()
    }

    /// The order in which all get a place when there is one, each after the one before has left.
    fn order(waiting: &[(u8, &str)]) -> Vec<usize> {
        let (mut queue, tickets) = queue(1, waiting);
        let turn = || queue.next().inspect(|number| queue.leave(&tickets[*number]));
        std::iter::from_fn(turn).collect()
    }

    #[test]
    fn namespaces_take_turns_and_within_one_first_is_first() {
        let waiting = [(API_SERVER, "a"), (API_SERVER, "a"), (API_SERVER, "a"), (API_SERVER, "b"), (API_SERVER, "c")];
        assert_eq!(order(&waiting), [0, 3, 4, 1, 2]);
    }

    #[test]
    fn address_that_names_many_namespaces_has_one_turn_of_two() {
        let forged = ["a", "b", "c", "other", "other"].map(|namespace| (STRANGER, namespace));
        let waiting = [&forged[..], &[(API_SERVER, "other"), (API_SERVER, "a")]].concat();
        assert_eq!(order(&waiting), [0, 5, 1, 6, 2, 3, 4]);
    }

    #[test]
    fn namespace_gets_place_while_it_holds_fewer_than_are_free() {
        let (mut queue, tickets) = queue(4, &[(API_SERVER, "a"); 6]);
        assert_eq!(given(&mut queue), [0, 1]);
        let other = queue.enter(party(API_SERVER, "other"), 6);
        assert_eq!(given(&mut queue), [6], "however long the first two take");
        queue.leave(&other);
        queue.leave(&tickets[0]);
        assert_eq!(given(&mut queue), [2]);
        queue.enter(party(STRANGER, "a"), 7);
        assert_eq!(given(&mut queue), Vec::<usize>::new(), "by any address");
    }

    #[test]
    fn last_place_goes_to_namespace_that_holds_none() {
        let waiting = ["a", "a", "b", "c", "a", "b", "c", "d"].map(|namespace| (API_SERVER, namespace));
        let (mut queue, tickets) = queue(4, &waiting);
        assert_eq!(given(&mut queue), [0, 2, 3, 7]);
        for ticket in [0, 2, 3] {
            queue.leave(&tickets[ticket]);
        }
        assert_eq!(given(&mut queue), [1, 5, 6]);
    }

    #[test]
    fn one_that_gave_up_is_passed_over_and_frees_nothing() {
        let (mut queue, tickets) = queue(1, &[(API_SERVER, "a"), (API_SERVER, "a"), (API_SERVER, "b")]);
        assert_eq!(queue.next(), Some(0));
        queue.leave(&tickets[1]);
        assert_eq!(queue.next(), None);
        queue.leave(&tickets[0]);
        assert_eq!(given(&mut queue), [2]);
        queue.leave(&tickets[2]);
        assert!(queue.free == 1 && queue.held.is_empty() && queue.waiting.is_empty(), "{queue:?}");
        assert!(queue.waiting.order.is_empty());
    }
}
