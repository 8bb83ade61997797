//! The memory of reviews, in a [`Pool`] of bytes: a review holds as much as its body, and then as its answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use jobset_program::server::party::Party;
use jobset_program::server::places::{Rank, Size};
use jobset_program::server::pool::{Lost, Place, Pool};

use crate::party::{HEAD, named};
use crate::unreviewed::Unreviewed;

/// Number of bytes of an answer that hyper gets at once. The rest stays counted here until the client can receive more. What hyper
/// has is not counted, and one client may have a hundred thousand answers on their way (a hundred on each of a thousand
/// connections), so the number is small.
const PIECE: usize = 2 << 10;

/// What a review counts at least, in bytes: about what a request takes besides its body.
const LEAST: usize = 4 << 10;

/// The memory that reviews share.
pub(crate) struct Memory {
    bytes: Arc<Pool<Vec<u8>>>,
    mebibytes: usize,
    displace_after: Duration,
}

impl Memory {
    /// So much. A body or an answer that is on its way makes room for its own party after this time.
    pub(crate) fn new(mebibytes: usize, displace_after: Duration) -> Arc<Self> {
        let size = Size { age_for_own: displace_after, ..Size::of(mebibytes << 20) };
        Arc::new(Self { bytes: Pool::new(size), mebibytes, displace_after })
    }

    /// A body that is about to arrive, with `room` bytes of capacity that are not counted yet.
    pub(crate) fn coming(self: &Arc<Self>, party: Party, room: usize) -> Result<ReviewMemory, Unreviewed> {
        let place = self.bytes.enter(&party, LEAST, Vec::with_capacity(room)).map_err(|_| self.full())?;
        Ok(ReviewMemory { place, party, memory: Arc::clone(self), is_named: false, has_arrived: false })
    }

    fn full(&self) -> Unreviewed {
        Unreviewed::NoMemory(self.mebibytes)
    }
}

/// The memory of one review. Others may take it, except while somebody works on the review.
pub(crate) struct ReviewMemory {
    place: Place<Vec<u8>>,
    party: Party,
    memory: Arc<Memory>,
    /// Whether enough has arrived to know the party.
    is_named: bool,
    has_arrived: bool,
}

impl ReviewMemory {
    /// Adds bytes that have arrived.
    pub(crate) fn extend(&mut self, data: &[u8]) -> Result<(), Unreviewed> {
        let length = self.with(|body| body.len())? + data.len();
        self.resize(length.max(LEAST))?;
        self.with(|body| body.extend_from_slice(data))?;
        if length >= HEAD {
            self.name()?;
        }
        Ok(())
    }

    /// The whole body is there. From now on it waits for us.
    pub(crate) fn arrived(&mut self) -> Result<(), Unreviewed> {
        self.name()?;
        self.has_arrived = true;
        self.place.rank(Rank::Known);
        Ok(())
    }

    fn name(&mut self) -> Result<(), Unreviewed> {
        if !self.is_named {
            self.party = self.with(|body| named(&self.party, body))?;
            self.place.rename(&self.party);
            self.is_named = true;
        }
        Ok(())
    }

    /// The party of the body, once it has arrived.
    pub(crate) fn party(&self) -> &Party {
        &self.party
    }

    /// The whole body, to work on. Until [`ReviewMemory::waits`] nobody takes its memory.
    pub(crate) fn lend(&self) -> Result<Vec<u8>, Unreviewed> {
        self.place.take().map_err(|lost| self.taken_away(lost))
    }

    pub(crate) fn give_back(&self, body: Vec<u8>) {
        // Nobody takes the memory of a body that is lent.
        let _ = self.place.put(body, Rank::Fixed);
    }

    /// The result of something that the review waits for. Meanwhile others may take its memory.
    pub(crate) async fn waits<T>(&self, something: impl Future<Output = T>) -> Result<T, Unreviewed> {
        self.place.rank(Rank::Known);
        tokio::select! {
            came = something => Ok(came),
            lost = self.place.lost() => Err(self.taken_away(lost)),
        }
    }

    /// The answer in place of the body, to be sent.
    pub(crate) fn going(self: Arc<Self>, answer: Vec<u8>) -> Result<Going, Unreviewed> {
        let left = answer.len();
        self.resize(left)?;
        self.place.put(answer, Rank::Stranger).map_err(|lost| self.taken_away(lost))?;
        Ok(Going { memory: self, left })
    }

    fn with<R>(&self, act: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R, Unreviewed> {
        self.place.with(act).map_err(|lost| self.taken_away(lost))
    }

    fn resize(&self, bytes: usize) -> Result<(), Unreviewed> {
        self.place.resize(&self.party, bytes).map_err(|_| self.memory.full())
    }

    fn taken_away(&self, Lost { to_own }: Lost) -> Unreviewed {
        // Whoever waits for us is not slow.
        if to_own && !self.has_arrived { Unreviewed::Slow(self.memory.displace_after) } else { Unreviewed::HeldMost }
    }
}

/// The body of an answer, while it is sent.
pub(crate) struct Going {
    memory: Arc<ReviewMemory>,
    left: usize,
}

impl HttpBody for Going {
    type Data = Bytes;
    type Error = Unreviewed;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Unreviewed>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let left = self.left;
        let piece = self.memory.with(|answer| {
            let rest = &answer[answer.len() - left..];
            Bytes::copy_from_slice(&rest[..left.min(PIECE)])
        });
        Poll::Ready(Some(piece.map(|piece| {
            self.left -= piece.len();
            Frame::data(piece)
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}
