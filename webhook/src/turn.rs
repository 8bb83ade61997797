//! The turn of a review: where it is computed, on a thread that does nothing else meanwhile, and where it waits.

use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use futures::stream;
use jobset_program::lock;
use jobset_program::server::party::Party;
use tokio::sync::OwnedSemaphorePermit;

use crate::memory::ReviewMemory;
use crate::places::{Place, Places};
use crate::unreviewed::Unreviewed;

/// Most reviews that are computed at the same time. Each takes a thread, and memory: what is read may take dozens of times as much as
/// its body.
const MOST: u32 = 4;

pub(crate) struct Computing {
    /// Number of places.
    pub(crate) at_once: usize,
    pub(crate) places: Arc<Places>,
    /// For those that take so much memory that there is one at a time. They leave the other places to others.
    alone: Arc<Places>,
}

impl Computing {
    /// So many at once, up to a limit.
    pub(crate) fn new(at_once: u32) -> Self {
        let at_once = at_once.min(MOST) as usize;
        Self { at_once, places: Places::new(at_once), alone: Places::new(1) }
    }
}

/// The turn of a review, in the extensions of its request. While it waits, others may take the memory of its body.
#[derive(Clone)]
pub(crate) struct Turn(Arc<Granted>);

struct Granted {
    memory: Arc<ReviewMemory>,
    computing: Arc<Computing>,
    waiting: Arc<Places>,
    /// Until the first computation.
    place: Mutex<Option<Place>>,
    _large: (Option<Place>, Option<OwnedSemaphorePermit>),
}

impl Turn {
    /// The turn of a review that has a place for its first computation.
    pub(crate) fn new(
        memory: ReviewMemory,
        place: Place,
        computing: Arc<Computing>,
        waiting: Arc<Places>,
        large: (Option<Place>, Option<OwnedSemaphorePermit>),
    ) -> Self {
        let (memory, place) = (Arc::new(memory), Mutex::new(Some(place)));
        Self(Arc::new(Granted { memory, computing, waiting, place, _large: large }))
    }

    pub(crate) fn party(&self) -> &Party {
        self.0.memory.party()
    }

    /// What `work` makes of the body. It keeps its place for as long as it takes, also when nobody waits for it any longer. After it,
    /// the place is somebody else's: a later computation waits for its turn again.
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> Result<T, Unreviewed> {
        let first = lock(&self.0.place).take();
        let place = match first {
            Some(place) => place,
            None => self.take(&self.0.computing.places).await?,
        };
        self.run(place, work).await
    }

    /// As [`Turn::compute`], one at a time.
    pub(crate) async fn compute_alone<T: Send + 'static>(
        &self,
        work: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> Result<T, Unreviewed> {
        let place = self.take(&self.0.computing.alone).await?;
        self.run(place, work).await
    }

    /// Waits for something that is computed elsewhere.
    pub(crate) async fn wait<T>(&self, elsewhere: impl Future<Output = T>) -> Result<T, Unreviewed> {
        let _place = self.take(&self.0.waiting).await?;
        self.0.memory.waits(elsewhere).await
    }

    pub(crate) fn memory(&self) -> Arc<ReviewMemory> {
        Arc::clone(&self.0.memory)
    }

    /// The body of the request, for a handler that reads it itself. Its memory is counted for as long as it exists.
    pub(crate) fn whole_body(&self) -> Body {
        let memory = self.memory();
        let lent = async move { memory.lend().map(|body| Bytes::from_owner(WholeBody { body, _memory: memory })) };
        Body::from_stream(stream::once(lent))
    }

    async fn take(&self, places: &Arc<Places>) -> Result<Place, Unreviewed> {
        self.0.memory.waits(places.take(self.party().clone())).await
    }

    async fn run<T: Send + 'static>(
        &self,
        place: Place,
        work: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> Result<T, Unreviewed> {
        let (turn, body) = (self.clone(), self.0.memory.lend()?);
        let work = move || {
            let _place = place;
            let computed = work(&body);
            turn.0.memory.give_back(body);
            computed
        };
        let computed = tokio::task::spawn_blocking(work).await;
        // A panic is a mistake of ours, and is answered like one in a handler.
        Ok(computed.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic())))
    }
}

/// See [`Turn::whole_body`].
struct WholeBody {
    body: Vec<u8>,
    _memory: Arc<ReviewMemory>,
}

impl AsRef<[u8]> for WholeBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use futures::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;
    use crate::memory::Memory;
    use crate::party::named;

    const BODY: &[u8] = br#"{"request":{"namespace":"a"}}"#;

    fn party() -> Party {
        named(&Party::of(Ipv4Addr::LOCALHOST.into()), BODY)
    }

    fn computing() -> Arc<Computing> {
        Arc::new(Computing::new(1))
    }

    async fn turn(computing: &Arc<Computing>) -> Turn {
        let memory = Memory::new(1, Duration::from_secs(1));
        let mut body = memory.coming(party(), 0).unwrap();
        body.extend(BODY).unwrap();
        body.arrived().unwrap();
        let place = computing.places.take(party()).await;
        Turn::new(body, place, Arc::clone(computing), Places::new(1), (None, None))
    }

    #[tokio::test]
    async fn computation_whose_client_gives_up_keeps_its_place() {
        let computing = computing();
        let ((begins, begun), (end, ends)) = (oneshot::channel(), mpsc::channel::<()>());
        let turn = turn(&computing).await;
        let client = tokio::spawn(async move {
            let work = move |_: &[u8]| {
                begins.send(()).unwrap();
                ends.recv().unwrap();
            };
            turn.compute(work).await
        });
        begun.await.unwrap();
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        let mut next = Box::pin(computing.places.take(party()));
        assert!(futures::poll!(&mut next).is_pending());
        end.send(()).unwrap();
        next.await;
    }

    #[tokio::test]
    async fn waiting_computation_whose_client_gives_up_never_begins() {
        let (computing, computed) = (computing(), Arc::new(AtomicUsize::new(0)));
        let count = || {
            let computed = Arc::clone(&computed);
            move |_: &[u8]| computed.fetch_add(1, Ordering::Relaxed)
        };
        let first = turn(&computing).await;
        first.compute(count()).await.unwrap();
        // The place is free after the first computation, and taken by another before the second.
        let other = computing.places.take(party()).await;
        let mut second = Box::pin(first.compute(count()));
        assert!(futures::poll!(&mut second).is_pending());
        drop(second);
        drop(other);
        assert!(computing.places.take(party()).now_or_never().is_some());
        assert_eq!(computed.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn panic_of_computation_frees_place_and_reaches_handler() {
        let computing = computing();
        let turn = turn(&computing).await;
        let panicked = tokio::spawn(async move { turn.compute(|_| panic!("out of range")).await }).await;
        assert!(panicked.unwrap_err().is_panic());
        assert!(computing.places.take(party()).now_or_never().is_some());
    }
}
