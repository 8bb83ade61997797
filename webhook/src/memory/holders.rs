//! Who holds how much memory, and whose body gives way. Pure.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use crate::party::Party;

/// Bodies by number, with what is needed to take each away. Later ones have higher numbers.
#[derive(Debug)]
pub(super) struct Holders<T> {
    bodies: HashMap<u64, Held<T>>,
    addresses: HashMap<IpAddr, OfAddress>,
}

#[derive(Debug)]
struct Held<T> {
    party: Party,
    bytes: usize,
    body: T,
}

#[derive(Debug, Default)]
struct OfAddress {
    bytes: usize,
    namespaces: HashMap<Arc<str>, OfNamespace>,
}

#[derive(Debug, Default)]
struct OfNamespace {
    bytes: usize,
    numbers: BTreeSet<u64>,
}

impl<T> Default for Holders<T> {
    fn default() -> Self {
        Self { bodies: HashMap::new(), addresses: HashMap::new() }
    }
}

impl<T> Holders<T> {
    /// A body that holds nothing yet.
    pub(super) fn enter(&mut self, number: u64, party: Party, body: T) {
        self.namespace(&party).numbers.insert(number);
        self.bodies.insert(number, Held { party, bytes: 0, body });
    }

    /// A body holds more. One that has left may be told about.
    pub(super) fn grow(&mut self, number: u64, more: usize) {
        let Some(held) = self.bodies.get_mut(&number) else { return };
        held.bytes += more;
        let party = held.party.clone();
        self.namespace(&party).bytes += more;
        self.addresses.entry(party.address).or_default().bytes += more;
    }

    /// A body turns out to be of another party.
    pub(super) fn rename(&mut self, number: u64, party: Party) {
        if let Some((body, bytes)) = self.remove(number) {
            self.enter(number, party, body);
            self.grow(number, bytes);
        }
    }

    /// A body holds nothing any longer.
    pub(super) fn leave(&mut self, number: u64) {
        self.remove(number);
    }

    /// The body that gives way to a party which needs more: the latest one of the address that holds most, and of its
    /// namespace that holds most. Nobody gives way to whoever would then hold as much.
    pub(super) fn gives_way(&self, to: &Party, more: usize) -> Option<(u64, &T)> {
        let number = self.heavier(to, more)?;
        Some((number, &self.bodies.get(&number)?.body))
    }

    fn heavier(&self, than: &Party, more: usize) -> Option<u64> {
        let own = self.addresses.get(&than.address);
        let others = self.addresses.iter().filter(|(address, _)| **address != than.address).map(|(_, other)| other);
        let heaviest = others.max_by_key(|other| other.bytes);
        if let Some(other) = heaviest.filter(|other| other.bytes > own.map_or(0, |own| own.bytes) + more) {
            return other.namespaces.values().max_by_key(|namespace| namespace.bytes)?.numbers.last().copied();
        }
        let namespaces = &own?.namespaces;
        let least = namespaces.get(&than.namespace).map_or(0, |namespace| namespace.bytes) + more;
        let others = namespaces.iter().filter(|(name, _)| **name != than.namespace).map(|(_, other)| other);
        others.filter(|other| other.bytes > least).max_by_key(|other| other.bytes)?.numbers.last().copied()
    }

    fn namespace(&mut self, party: &Party) -> &mut OfNamespace {
        self.addresses.entry(party.address).or_default().namespaces.entry(Arc::clone(&party.namespace)).or_default()
    }

    fn remove(&mut self, number: u64) -> Option<(T, usize)> {
        let Held { party, bytes, body } = self.bodies.remove(&number)?;
        let address = self.addresses.entry(party.address).or_default();
        address.bytes -= bytes;
        let namespace = address.namespaces.entry(Arc::clone(&party.namespace)).or_default();
        namespace.bytes -= bytes;
        namespace.numbers.remove(&number);
        if namespace.numbers.is_empty() {
            address.namespaces.remove(&party.namespace);
        }
        if address.namespaces.is_empty() {
            self.addresses.remove(&party.address);
        }
        Some((body, bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn party(address: u8, namespace: &str) -> Party {
        Party { address: Ipv4Addr::new(10, 0, 0, address).into(), namespace: namespace.into() }
    }

    /// Bodies of so many bytes each, by party.
    fn holders(bodies: &[(Party, usize)]) -> Holders<()> {
        let mut holders = Holders::default();
        for (number, (party, bytes)) in (0..).zip(bodies) {
            holders.enter(number, party.clone(), ());
            holders.grow(number, *bytes);
        }
        holders
    }

    fn gives_way(holders: &Holders<()>, to: &Party, more: usize) -> Option<u64> {
        holders.gives_way(to, more).map(|(number, ())| number)
    }

    #[test]
    fn latest_body_of_namespace_that_holds_most_gives_way() {
        let [a, b, c] = ["a", "b", "c"].map(|namespace| party(1, namespace));
        let mut holders = holders(&[(a.clone(), 50), (a.clone(), 60), (b.clone(), 100), (a.clone(), 10)]);
        assert_eq!(gives_way(&holders, &c, 1), Some(3));
        holders.leave(3);
        holders.leave(1);
        assert_eq!(gives_way(&holders, &c, 1), Some(2));
        assert_eq!(gives_way(&holders, &c, 100), None, "it would hold as much");
        assert_eq!(gives_way(&holders, &b, 1), None, "it holds most itself");
        assert_eq!(gives_way(&holders, &a, 49), Some(2));
        assert_eq!(gives_way(&holders, &a, 50), None);
    }

    #[test]
    fn address_that_holds_most_gives_way_whatever_it_names() {
        let forged = (0..20).map(|number| (party(2, &format!("forged-{number}")), 30));
        let [a, b] = ["a", "b"].map(|namespace| party(1, namespace));
        let bodies: Vec<_> = [(a.clone(), 100), (b.clone(), 50)].into_iter().chain(forged).collect();
        let mut holders = holders(&bodies);
        assert!(gives_way(&holders, &a, 100) > Some(1));
        assert!(gives_way(&holders, &party(2, "forged-21"), 10) > Some(1), "among its own");
        assert_eq!(gives_way(&holders, &party(2, "forged-21"), 30), None);
        (2..22).for_each(|number| holders.leave(number));
        assert_eq!(gives_way(&holders, &b, 10), Some(0));
    }

    #[test]
    fn body_is_counted_for_the_party_that_it_turns_out_to_be_of() {
        let [unnamed, a, b] = ["", "a", "b"].map(|namespace| party(1, namespace));
        let mut holders = holders(&[(unnamed.clone(), 10), (unnamed, 10)]);
        holders.rename(0, a.clone());
        holders.grow(0, 10);
        holders.grow(7, 100);
        assert_eq!(gives_way(&holders, &b, 11), Some(0));
        holders.rename(1, a);
        holders.leave(0);
        holders.leave(1);
        assert!(holders.bodies.is_empty() && holders.addresses.is_empty(), "{holders:?}");
    }
}
