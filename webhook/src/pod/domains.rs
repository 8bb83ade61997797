//! The topology domains of nodes that were asked for a short while ago: thousands of followers of a few leaders come
//! within seconds. Pure: the time is told.
//!
//! A node that moves to another domain meanwhile costs one Pod in the wrong place, which the JobSet's controller repairs.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a domain is taken to be what it was.
const FRESH: Duration = Duration::from_secs(10);
/// Number of nodes that are remembered.
const LIMIT: usize = 1024;

/// Domains by node and topology.
#[derive(Debug, Default)]
pub struct Domains(HashMap<(Box<str>, Box<str>), Domain>);

#[derive(Debug)]
struct Domain {
    name: Box<str>,
    seen: Instant,
}

impl Domain {
    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.seen) < FRESH
    }
}

impl Domains {
    /// The value of the label `topology` of a node.
    pub fn get(&self, node: &str, topology: &str, now: Instant) -> Option<&str> {
        let domain = self.0.get(&(node.into(), topology.into()))?;
        domain.is_fresh(now).then_some(&*domain.name)
    }

    /// Remembers it. When too much is remembered, what is old is forgotten, and all of it if nothing is.
    pub fn put(&mut self, node: &str, topology: &str, domain: &str, now: Instant) {
        if self.0.len() >= LIMIT {
            self.0.retain(|_, domain| domain.is_fresh(now));
        }
        if self.0.len() >= LIMIT {
            self.0.clear();
        }
        self.0.insert((node.into(), topology.into()), Domain { name: domain.into(), seen: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_is_known_by_node_and_topology_while_fresh() {
        let (mut domains, now) = (Domains::default(), Instant::now());
        domains.put("n1", "rack", "r1", now);
        let late = now + FRESH;
        assert_eq!(domains.get("n1", "rack", now), Some("r1"));
        assert_eq!(domains.get("n1", "zone", now), None);
        assert_eq!(domains.get("n2", "rack", now), None);
        assert_eq!(domains.get("n1", "rack", late), None);
        domains.put("n1", "rack", "r2", late);
        assert_eq!(domains.get("n1", "rack", late), Some("r2"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut domains, now) = (Domains::default(), Instant::now());
        (0..3 * LIMIT).for_each(|node| domains.put(&node.to_string(), "rack", "r1", now));
        assert!(domains.0.len() <= LIMIT);
        assert_eq!(domains.get(&(3 * LIMIT - 1).to_string(), "rack", now), Some("r1"));
    }
}
