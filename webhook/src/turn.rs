//! The turn of a review: its place among those that are computed, each on a thread that does nothing else meanwhile.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::party::Party;
use crate::places::{Place, Places};
use crate::registry::lock;

/// The turn of a review, in the extensions of its request. A request that came past [`crate::limits`] has a turn without limits.
#[derive(Clone, Default)]
pub(crate) struct Turn(Option<Arc<Granted>>);

struct Granted {
    party: Party,
    places: Arc<Places>,
    /// The place of the computation that is next, if it has one already.
    place: Mutex<Option<Place>>,
    /// The turn of a large body, until all is computed and answered.
    _large: Option<Place>,
}

impl Turn {
    /// The turn of a review that has this place among all these.
    pub(crate) fn new(party: Party, places: Arc<Places>, place: Place, large: Option<Place>) -> Self {
        Self(Some(Arc::new(Granted { party, places, place: Mutex::new(Some(place)), _large: large })))
    }

    /// What `work` returns. It keeps its place for as long as it takes, also when nobody waits for it any longer. After it, the
    /// place is somebody else's: what is computed later waits for a place again.
    pub(crate) async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let place = match &self.0 {
            Some(granted) => Some(granted.place().await),
            None => None,
        };
        let held = (place, self.0.clone());
        let work = move || {
            let _held = held;
            work()
        };
        let computed = tokio::task::spawn_blocking(work).await;
        // A panic is a mistake of ours, and is answered like one in a handler.
        computed.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
    }
}

impl Granted {
    async fn place(&self) -> Place {
        let first = lock(&self.place).take();
        match first {
            Some(place) => place,
            None => self.places.take(self.party.clone()).await,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Turn {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use futures::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    fn party() -> Party {
        Party { address: Ipv4Addr::LOCALHOST.into(), namespace: "a".into() }
    }

    async fn turn(places: &Arc<Places>) -> Turn {
        Turn::new(party(), Arc::clone(places), places.take(party()).await, None)
    }

    #[tokio::test]
    async fn computation_that_has_begun_keeps_its_place_when_its_client_gives_up() {
        let places = Places::new(1);
        let ((begins, begun), (end, ends)) = (oneshot::channel(), mpsc::channel::<()>());
        let turn = turn(&places).await;
        let client = tokio::spawn(async move {
            let work = move || {
                begins.send(()).unwrap();
                ends.recv().unwrap();
            };
            turn.compute(work).await;
        });
        begun.await.unwrap();
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        let mut next = Box::pin(places.take(party()));
        assert!(futures::poll!(&mut next).is_pending());
        end.send(()).unwrap();
        next.await;
    }

    #[tokio::test]
    async fn what_waits_for_its_place_is_not_computed_when_its_client_gives_up() {
        let (places, computed) = (Places::new(1), Arc::new(AtomicUsize::new(0)));
        let count = || {
            let computed = Arc::clone(&computed);
            move || computed.fetch_add(1, Ordering::Relaxed)
        };
        let first = turn(&places).await;
        first.compute(count()).await;
        // The place is free after the first computation, and taken by another before the second.
        let other = places.take(party()).await;
        let mut second = Box::pin(first.compute(count()));
        assert!(futures::poll!(&mut second).is_pending());
        drop(second);
        drop(other);
        assert!(places.take(party()).now_or_never().is_some());
        assert_eq!(computed.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn panic_of_a_computation_frees_its_place_and_reaches_its_handler() {
        let places = Places::new(1);
        let turn = turn(&places).await;
        let panicked = tokio::spawn(async move { turn.compute(|| panic!("out of range")).await }).await;
        assert!(panicked.unwrap_err().is_panic());
        assert!(places.take(party()).now_or_never().is_some());
    }
}
