//! How many actions are under way at once. Each has a connection of its own to the API server.
//!
//! Namespaces take turns: one that waits with a thousand actions delays the first action of another by one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use jobset_engine::Urgency;
use jobset_program::lock;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Most actions under way at once for all JobSets.
const CONNECTIONS: usize = 64;
/// Most bulk actions under way at once, so that urgent actions always find a connection.
const BULK_CONNECTIONS: usize = 48;
/// Most bulk actions under way at once while a JobSet has urgent work. An API server with many requests answers each of them
/// late, those of agents too, and a restart takes several requests one after the other.
const BULK_BESIDE_URGENT: usize = 4;
/// Time after an urgent work in which more of them are expected: agents report, and their reports are reconciled.
const URGENT_FOR: Duration = Duration::from_secs(1);

/// The connections for actions. A status write needs none of them: each work has at most one, and the engine bounds the works.
#[derive(Debug)]
pub(super) struct Connections {
    all: Semaphore,
    bulk: Semaphore,
    bulk_beside_urgent: Semaphore,
    last_urgent: Mutex<Option<Instant>>,
    turns: Mutex<HashMap<(Urgency, String), Turn>>,
}

/// Held by the action of a namespace that gets the next connection. The others of the namespace wait for it.
type Turn = Weak<tokio::sync::Mutex<()>>;

/// The connection of an action, until dropped.
#[derive(Debug)]
pub(super) struct Connection<'a> {
    _permits: [Option<SemaphorePermit<'a>>; 3],
}

impl Connections {
    pub(super) fn new() -> Self {
        Self {
            all: Semaphore::new(CONNECTIONS),
            bulk: Semaphore::new(BULK_CONNECTIONS),
            bulk_beside_urgent: Semaphore::new(BULK_BESIDE_URGENT),
            last_urgent: Mutex::default(),
            turns: Mutex::default(),
        }
    }

    /// An urgent work begins.
    pub(super) fn expect_urgent(&self) {
        *lock(&self.last_urgent) = Some(Instant::now());
    }

    fn expects_urgent(&self) -> bool {
        let last = *lock(&self.last_urgent);
        last.is_some_and(|last| last.elapsed() < URGENT_FOR)
    }

    /// Waits for a connection. Of each namespace, one action waits in the queue of all namespaces.
    pub(super) async fn acquire(&self, namespace: &str, urgency: Urgency) -> Connection<'_> {
        let turn = self.turn(namespace, urgency);
        let _turn = turn.lock().await;
        // Nobody closes the semaphores.
        let (mut bulk, mut beside_urgent) = (None, None);
        if urgency == Urgency::Bulk {
            bulk = self.bulk.acquire().await.ok();
            if self.expects_urgent() {
                beside_urgent = self.bulk_beside_urgent.acquire().await.ok();
            }
        }
        Connection { _permits: [bulk, beside_urgent, self.all.acquire().await.ok()] }
    }

    fn turn(&self, namespace: &str, urgency: Urgency) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = lock(&self.turns);
        let turn = turns.entry((urgency, namespace.to_owned())).or_default();
        if let Some(turn) = turn.upgrade() {
            return turn;
        }
        let new = Arc::default();
        *turn = Arc::downgrade(&new);
        turns.retain(|_, turn| turn.strong_count() > 0);
        new
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::stream::{FuturesUnordered, StreamExt as _};
    use tokio::task::unconstrained;

    use super::*;

    fn free(pool: &Connections, urgency: Urgency) -> Option<Connection<'_>> {
        unconstrained(pool.acquire("holder", urgency)).now_or_never()
    }

    /// The namespaces in the order in which their waiting actions get connections. Each gives its connection back at once.
    async fn order(urgency: Urgency, waiting: &[(&'static str, usize)]) -> Vec<&'static str> {
        let pool = &Connections::new();
        let mut held: Vec<_> = std::iter::from_fn(|| free(pool, urgency)).collect();
        let actions = waiting.iter().flat_map(|(namespace, count)| std::iter::repeat_n(*namespace, *count));
        let acquire = async |namespace| (namespace, pool.acquire(namespace, urgency).await);
        let mut actions: FuturesUnordered<_> = actions.map(acquire).collect();
        assert!(actions.next().now_or_never().is_none(), "a connection is free");
        held.pop();
        let mut order = Vec::new();
        while let Some((namespace, connection)) = actions.next().await {
            order.push(namespace);
            drop(connection);
        }
        order
    }

    #[tokio::test]
    async fn acquire_namespace_with_many_actions_delays_another_by_one() {
        let waiting = [("many", 5), ("one", 1), ("two", 2)];
        let expected = ["many", "one", "two", "many", "two", "many", "many", "many"];
        assert_eq!(order(Urgency::Urgent, &waiting).await, expected);
        assert_eq!(order(Urgency::Bulk, &waiting).await, expected);
    }

    #[tokio::test]
    async fn acquire_bulk_leaves_connections_to_urgent_actions() {
        let pool = &Connections::new();
        let count = |urgency| std::iter::from_fn(|| free(pool, urgency)).collect::<Vec<_>>();
        let bulk = count(Urgency::Bulk);
        assert_eq!((bulk.len(), count(Urgency::Urgent).len()), (BULK_CONNECTIONS, CONNECTIONS - BULK_CONNECTIONS));
        drop(bulk);
        pool.expect_urgent();
        assert_eq!(count(Urgency::Bulk).len(), BULK_BESIDE_URGENT);
    }

    #[tokio::test]
    async fn acquire_namespace_that_waits_no_more_is_forgotten() {
        let pool = Connections::new();
        for namespace in 0..100 {
            drop(pool.acquire(&namespace.to_string(), Urgency::Urgent).await);
        }
        assert_eq!(pool.turns.lock().unwrap().len(), 1);
    }
}
