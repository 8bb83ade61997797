//! Memory for what comes from clients and for what they are answered: counted, and when there is none left, taken from
//! those who do not send or read.

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

/// What of an answer is handed over at once, in bytes. The rest stays where it is counted until the client has room for
/// more. What was handed over is not counted any more, and a client may have a hundred thousand answers (a hundred on each
/// of a thousand connections); so it is little.
const PIECE: usize = 2 << 10;

/// All memory is in use, by those who have not had it for long or are being answered.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("no memory")]
pub(crate) struct NoMemory;

/// The memory of a share was needed for others, and it had been on its way for longer than it may then.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("others needed its memory after {0:?}")]
pub(crate) struct TakenAway(Duration);

/// Why a body gets no more memory.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Shortage {
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    #[error(transparent)]
    TakenAway(#[from] TakenAway),
}

/// A limited number of bytes.
pub(crate) struct Memory {
    /// After which the slowest gives way to others.
    patience: Duration,
    free: Arc<Semaphore>,
    moving: Mutex<Moving>,
}

/// What comes or goes, in the order in which it began to.
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
        TakenAway(self.memory.patience)
    }
}

impl Memory {
    pub(crate) fn new(bytes: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self { patience, free: Arc::new(Semaphore::new(bytes)), moving: Mutex::default() })
    }

    /// A body that is about to come, and room for a part of it that has not been asked for.
    pub(crate) fn coming(self: &Arc<Self>, room: usize) -> Result<Coming, NoMemory> {
        let counted = self.claim(0, Instant::now())?;
        Ok(Coming(self.share(Content { bytes: Vec::with_capacity(room), counted })))
    }

    /// The body of an answer, in the place of that of its request.
    pub(crate) fn going(
        self: &Arc<Self>,
        bytes: Vec<u8>,
        mut counted: OwnedSemaphorePermit,
    ) -> Result<Going, NoMemory> {
        match bytes.len().checked_sub(counted.num_permits()) {
            Some(more) => counted.merge(self.claim(more, Instant::now())?),
            None => drop(counted.split(counted.num_permits() - bytes.len())),
        }
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

    /// Frees what the slowest holds.
    fn take_away(&self, now: Instant) -> Result<(), NoMemory> {
        let mut moving = lock(&self.moving);
        let slowest = moving.shares.first_entry().filter(|it| it.get().since + self.patience < now).ok_or(NoMemory)?;
        lock(&slowest.remove().content).take();
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        lock(&self.memory.moving).shares.remove(&self.id);
    }
}

/// A body that comes.
pub(crate) struct Coming(Share);

impl Coming {
    /// More of it is here.
    pub(crate) fn extend(&self, data: &[u8]) -> Result<(), Shortage> {
        let more = self.0.memory.claim(data.len(), Instant::now())?;
        let mut content = lock(&self.0.slot.content);
        let content = content.as_mut().ok_or_else(|| self.0.taken_away())?;
        content.counted.merge(more);
        content.bytes.extend_from_slice(data);
        Ok(())
    }

    /// The whole body, and what counts it from now on.
    pub(crate) fn whole(self) -> Result<(Bytes, OwnedSemaphorePermit), TakenAway> {
        let content = lock(&self.0.slot.content).take().ok_or_else(|| self.0.taken_away())?;
        Ok((content.bytes.into(), content.counted))
    }
}

/// A body that goes.
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
