//! Counts the memory of requests and answers. When it is used up, a new request takes that of the client that has been sending or
//! receiving longest.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::registry::lock;

/// Number of bytes of an answer that hyper gets at once. The rest stays counted here until the client can receive more. What hyper
/// has is not counted, and one client may have a hundred thousand answers on their way (a hundred on each of a thousand
/// connections), so the number is small.
const PIECE: usize = 2 << 10;

/// All memory is in use, and nothing that uses it is slow.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("no memory")]
pub(crate) struct NoMemory;

/// Others needed the memory of this share, which was slow.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("others needed its memory after {0:?}")]
pub(crate) struct TakenAway(Duration);

/// Why a body gets no memory.
#[derive(Debug, PartialEq, thiserror::Error)]
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
    moving: Mutex<Moving>,
}

/// Bodies and answers on their way, in the order in which they began.
#[derive(Default)]
struct Moving {
    next: u64,
    shares: BTreeMap<u64, Arc<Slot>>,
}

struct Slot {
    since: Instant,
    content: Mutex<Option<Content>>,
}

struct Content {
    bytes: Vec<u8>,
    counted: OwnedSemaphorePermit,
}

/// A body on its way from or to a client.
struct Share {
    id: u64,
    slot: Arc<Slot>,
    memory: Arc<Memory>,
}

impl Share {
    fn taken_away(&self) -> TakenAway {
        TakenAway(self.memory.slow_after)
    }
}

impl Memory {
    pub(crate) fn new(bytes: usize, slow_after: Duration) -> Arc<Self> {
        Arc::new(Self { slow_after, free: Arc::new(Semaphore::new(bytes)), moving: Mutex::default() })
    }

    /// A body that is about to arrive, with `room` bytes of capacity that are not counted yet.
    pub(crate) fn coming(self: &Arc<Self>, room: usize) -> Result<Coming, NoMemory> {
        let counted = self.claim(0, Instant::now())?;
        Ok(Coming(self.share(Content { bytes: Vec::with_capacity(room), counted })))
    }

    /// The body of an answer. It takes what it needs of the memory of its request.
    pub(crate) fn going(
        self: &Arc<Self>,
        bytes: Vec<u8>,
        counted: &mut OwnedSemaphorePermit,
    ) -> Result<Going, NoMemory> {
        if let Some(more) = bytes.len().checked_sub(counted.num_permits()) {
            counted.merge(self.claim(more, Instant::now())?);
        }
        let counted = counted.split(bytes.len()).ok_or(NoMemory)?;
        let left = bytes.len();
        Ok(Going { share: self.share(Content { bytes, counted }), left })
    }

    fn share(self: &Arc<Self>, content: Content) -> Share {
        let slot = Arc::new(Slot { since: Instant::now(), content: Mutex::new(Some(content)) });
        let mut moving = lock(&self.moving);
        let id = moving.next;
        moving.next = id.wrapping_add(1);
        moving.shares.insert(id, Arc::clone(&slot));
        Share { id, slot, memory: Arc::clone(self) }
    }

    fn claim(&self, bytes: usize, now: Instant) -> Result<OwnedSemaphorePermit, NoMemory> {
        let bytes = u32::try_from(bytes).map_err(|_| NoMemory)?;
        loop {
            match Arc::clone(&self.free).try_acquire_many_owned(bytes) {
                Ok(counted) => return Ok(counted),
                Err(_) => self.take_away(now)?,
            }
        }
    }

    /// Frees the memory of the slowest body or answer.
    fn take_away(&self, now: Instant) -> Result<(), NoMemory> {
        let mut moving = lock(&self.moving);
        let slowest =
            moving.shares.first_entry().filter(|it| it.get().since + self.slow_after < now).ok_or(NoMemory)?;
        lock(&slowest.remove().content).take();
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        lock(&self.memory.moving).shares.remove(&self.id);
    }
}

/// The body of a request, while it arrives.
pub(crate) struct Coming(Share);

impl Coming {
    /// Adds bytes that have arrived.
    pub(crate) fn extend(&self, data: &[u8]) -> Result<(), Shortage> {
        let more = self.0.memory.claim(data.len(), Instant::now())?;
        let mut content = lock(&self.0.slot.content);
        let content = content.as_mut().ok_or_else(|| self.0.taken_away())?;
        content.counted.merge(more);
        content.bytes.extend_from_slice(data);
        Ok(())
    }

    /// The whole body, with the permit that counts it from now on.
    pub(crate) fn whole(self) -> Result<(Bytes, OwnedSemaphorePermit), TakenAway> {
        let content = lock(&self.0.slot.content).take().ok_or_else(|| self.0.taken_away())?;
        Ok((content.bytes.into(), content.counted))
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
        let piece = match lock(&self.share.slot.content).as_ref() {
            Some(Content { bytes, .. }) => {
                let rest = &bytes[bytes.len() - self.left..];
                Bytes::copy_from_slice(&rest[..rest.len().min(PIECE)])
            }
            None => return Poll::Ready(Some(Err(self.share.taken_away()))),
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
