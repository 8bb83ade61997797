//! Counts the memory of requests and answers. When it is used up, a new request takes that of the client that has been sending or
//! receiving longest, if that is long, and else that of a body of the party that holds most.

mod holders;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::party::{HEAD, Party};
use crate::registry::lock;
use holders::Holders;

/// Number of bytes of an answer that hyper gets at once. The rest stays counted here until the client can receive more. What hyper
/// has is not counted, and one client may have a hundred thousand answers on their way (a hundred on each of a thousand
/// connections), so the number is small.
const PIECE: usize = 2 << 10;

/// What a body counts at least, in bytes: about what a request takes besides.
const LEAST: usize = 4 << 10;

/// All memory is in use; nothing that uses it is slow, and no party holds more than the one that asks.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("no memory")]
pub(crate) struct NoMemory;

/// Others needed the memory of this share.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub(crate) enum TakenAway {
    /// It was slow.
    #[error("others needed its memory after {0:?}")]
    Slow(Duration),
    /// Its party held most.
    #[error("others needed its memory, of which its namespace held most")]
    HeldMost,
}

/// Why a body gets no memory.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Shortage {
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    #[error(transparent)]
    TakenAway(#[from] TakenAway),
}

/// A limited number of bytes.
pub(crate) struct Memory {
    /// A body or an answer that takes longer is slow, and loses its memory to others.
    slow_after: Duration,
    free: Arc<Semaphore>,
    shares: Mutex<Shares>,
}

#[derive(Default)]
struct Shares {
    next: u64,
    /// Bodies and answers on their way, in the order in which they began.
    moving: BTreeMap<u64, Arc<Slot>>,
    /// Bodies on their way, and whole ones that wait for their turn.
    bodies: Holders<Arc<Slot>>,
}

struct Slot {
    since: Instant,
    state: Mutex<State>,
    taken_away: Notify,
}

enum State {
    Held(Content),
    /// Somebody works on it, and nobody takes its memory.
    Lent,
    TakenAway(TakenAway),
}

/// Bytes, with the permit that counts them.
pub(crate) struct Content {
    bytes: Vec<u8>,
    counted: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body or an answer that others may take the memory of.
struct Share {
    number: u64,
    slot: Arc<Slot>,
    memory: Arc<Memory>,
}

impl Memory {
    pub(crate) fn new(bytes: usize, slow_after: Duration) -> Arc<Self> {
        Arc::new(Self { slow_after, free: Arc::new(Semaphore::new(bytes)), shares: Mutex::default() })
    }

    /// A body that is about to arrive, with `room` bytes of capacity that are not counted yet.
    pub(crate) fn coming(self: &Arc<Self>, party: Party, room: usize) -> Result<Coming, NoMemory> {
        let counted = self.claim(0, &party, Instant::now())?;
        let share = self.share(Content { bytes: Vec::with_capacity(room), counted });
        lock(&self.shares).bodies.enter(share.number, party.clone(), Arc::clone(&share.slot));
        Ok(Coming { share, party, named: false })
    }

    /// The body of an answer. It takes what it needs of the memory of its request, if that still has any.
    pub(crate) fn going(
        self: &Arc<Self>,
        bytes: Vec<u8>,
        request: Option<Content>,
        party: &Party,
    ) -> Result<Going, NoMemory> {
        let mut counted = match request {
            Some(request) => request.counted,
            None => self.claim(0, party, Instant::now())?,
        };
        if let Some(more) = bytes.len().checked_sub(counted.num_permits()) {
            counted.merge(self.claim(more, party, Instant::now())?);
        }
        let counted = counted.split(bytes.len()).ok_or(NoMemory)?;
        let left = bytes.len();
        Ok(Going { share: self.share(Content { bytes, counted }), left })
    }

    fn share(self: &Arc<Self>, content: Content) -> Share {
        let (since, state) = (Instant::now(), Mutex::new(State::Held(content)));
        let slot = Arc::new(Slot { since, state, taken_away: Notify::new() });
        let mut shares = lock(&self.shares);
        let number = shares.next;
        shares.next = number.wrapping_add(1);
        shares.moving.insert(number, Arc::clone(&slot));
        Share { number, slot, memory: Arc::clone(self) }
    }

    fn claim(&self, bytes: usize, party: &Party, now: Instant) -> Result<OwnedSemaphorePermit, NoMemory> {
        let permits = u32::try_from(bytes).map_err(|_| NoMemory)?;
        loop {
            match Arc::clone(&self.free).try_acquire_many_owned(permits) {
                Ok(counted) => return Ok(counted),
                Err(_) => self.take_away(bytes, party, now)?,
            }
        }
    }

    /// Frees the memory of one body or answer: that of the slowest one, or else that of the party that holds most.
    fn take_away(&self, bytes: usize, party: &Party, now: Instant) -> Result<(), NoMemory> {
        let mut shares = lock(&self.shares);
        let slowest = shares.moving.first_key_value().filter(|(_, slot)| slot.since + self.slow_after < now);
        let slowest = slowest.map(|(number, slot)| (*number, slot, TakenAway::Slow(self.slow_after)));
        let heaviest =
            || shares.bodies.gives_way(party, bytes).map(|(number, slot)| (number, slot, TakenAway::HeldMost));
        let (number, slot, why) = slowest.or_else(heaviest).ok_or(NoMemory)?;
        let slot = Arc::clone(slot);
        shares.forget(number);
        *lock(&slot.state) = State::TakenAway(why);
        slot.taken_away.notify_one();
        Ok(())
    }
}

impl Shares {
    fn forget(&mut self, number: u64) {
        self.moving.remove(&number);
        self.bodies.leave(number);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        lock(&self.memory.shares).forget(self.number);
    }
}

/// The body of a request. While it arrives, and while it waits for something, others may take its memory.
pub(crate) struct Coming {
    share: Share,
    party: Party,
    /// Whether enough has arrived to know the party.
    named: bool,
}

impl Coming {
    /// Adds bytes that have arrived.
    pub(crate) fn extend(&mut self, data: &[u8]) -> Result<(), Shortage> {
        let Share { number, slot, memory } = &self.share;
        let (length, counts) = {
            let mut state = lock(&slot.state);
            let content = state.content()?;
            (content.bytes.len() + data.len(), content.counted.num_permits())
        };
        let more = memory.claim(length.max(LEAST).saturating_sub(counts), &self.party, Instant::now())?;
        let (mut shares, mut state) = (lock(&memory.shares), lock(&slot.state));
        let content = state.content()?;
        shares.bodies.grow(*number, more.num_permits());
        content.counted.merge(more);
        content.bytes.extend_from_slice(data);
        if !self.named && length >= HEAD {
            self.party = self.party.named(&content.bytes);
            self.named = true;
            shares.bodies.rename(*number, self.party.clone());
        }
        Ok(())
    }

    /// All of it is there. From now on it is not slow.
    pub(crate) fn arrived(&mut self) -> Result<(), TakenAway> {
        let Share { number, slot, memory } = &self.share;
        let (mut shares, mut state) = (lock(&memory.shares), lock(&slot.state));
        shares.moving.remove(number);
        let content = state.content()?;
        if !self.named {
            self.party = self.party.named(&content.bytes);
            shares.bodies.rename(*number, self.party.clone());
        }
        Ok(())
    }

    /// The party of the body, once it has arrived.
    pub(crate) fn party(&self) -> &Party {
        &self.party
    }

    /// Resolves when others have taken its memory.
    pub(crate) async fn taken_away(&self) -> TakenAway {
        loop {
            self.share.slot.taken_away.notified().await;
            if let State::TakenAway(taken_away) = &*lock(&self.share.slot.state) {
                return *taken_away;
            }
        }
    }

    /// The whole body, to work on. It keeps its memory until it is dropped or given back.
    pub(crate) fn lend(&self) -> Result<Content, TakenAway> {
        lock(&self.share.memory.shares).bodies.leave(self.share.number);
        let mut state = lock(&self.share.slot.state);
        match std::mem::replace(&mut *state, State::Lent) {
            State::Held(content) => Ok(content),
            State::TakenAway(taken_away) => Err(taken_away),
            // Nobody asks for it twice.
            State::Lent => Err(TakenAway::HeldMost),
        }
    }

    /// Gives back what was lent.
    pub(crate) fn give_back(&self, content: Content) {
        let Share { number, slot, memory } = &self.share;
        let (mut shares, mut state) = (lock(&memory.shares), lock(&slot.state));
        shares.bodies.enter(*number, self.party.clone(), Arc::clone(slot));
        shares.bodies.grow(*number, content.counted.num_permits());
        *state = State::Held(content);
    }
}

impl State {
    fn content(&mut self) -> Result<&mut Content, TakenAway> {
        match self {
            Self::Held(content) => Ok(content),
            Self::TakenAway(taken_away) => Err(*taken_away),
            Self::Lent => Err(TakenAway::HeldMost),
        }
    }
}

/// The body of an answer, while it is sent.
pub(crate) struct Going {
    share: Share,
    left: usize,
}

impl HttpBody for Going {
    type Data = Bytes;
    type Error = TakenAway;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TakenAway>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let piece = match lock(&self.share.slot.state).content() {
            Ok(Content { bytes, .. }) => {
                let rest = &bytes[bytes.len() - self.left..];
                Bytes::copy_from_slice(&rest[..rest.len().min(PIECE)])
            }
            Err(taken_away) => return Poll::Ready(Some(Err(taken_away))),
        };
        self.left -= piece.len();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}
