//! Counts the bytes of a connection, and follows the TLS records that they are.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Clone, Debug)]
pub(crate) struct ByteCounters {
    pub(crate) read: IntCounter,
    pub(crate) written: IntCounter,
}

/// Whether a TLS record has begun and the rest of it has not arrived. What it holds is in memory, and no reader knows of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct WithinRecord(Arc<AtomicBool>);

impl WithinRecord {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Follows TLS records: a header of a type, a version and a length, and as many bytes.
#[derive(Debug, Default)]
struct Records {
    header: [u8; 5],
    /// Bytes of the header that have arrived.
    begun: usize,
    /// Bytes that are missing behind the header.
    left: usize,
}

impl Records {
    /// Takes bytes in. Returns whether they end within a record.
    fn read(&mut self, mut bytes: &[u8]) -> bool {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let taken = self.left.min(bytes.len());
                (self.left, bytes) = (self.left - taken, &bytes[taken..]);
                continue;
            }
            (self.header[self.begun], bytes) = (*first, rest);
            self.begun += 1;
            if self.begun == self.header.len() {
                let [.., high, low] = self.header;
                (self.begun, self.left) = (0, u16::from_be_bytes([high, low]).into());
            }
        }
        self.begun > 0 || self.left > 0
    }
}

#[derive(Debug)]
pub(crate) struct Counted<S> {
    inner: S,
    counters: ByteCounters,
    records: Records,
    within_record: WithinRecord,
}

impl<S> Counted<S> {
    pub(crate) fn new(inner: S, counters: ByteCounters) -> Self {
        Self { inner, counters, records: Records::default(), within_record: WithinRecord::default() }
    }

    /// Tells from now on whether a record has begun and not ended.
    pub(crate) fn within_record(&self) -> WithinRecord {
        self.within_record.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let bytes = &buffer.filled()[before..];
        self.counters.read.inc_by(bytes.len() as u64);
        let is_within = self.records.read(bytes);
        self.within_record.0.store(is_within, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.counters.written.inc_by(written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, buffers))?;
        self.counters.written.inc_by(written as u64);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[rstest]
    #[case::nothing(&[], false)]
    #[case::part_of_a_header(&[23, 3], true)]
    #[case::header(&[23, 3, 3, 0, 2], true)]
    #[case::half(&[23, 3, 3, 0, 2, 7], true)]
    #[case::whole(&[23, 3, 3, 0, 2, 7, 7], false)]
    #[case::empty_record(&[23, 3, 3, 0, 0], false)]
    #[case::whole_and_a_part(&[23, 3, 3, 0, 2, 7, 7, 23], true)]
    #[case::two(&[23, 3, 3, 0, 1, 7, 22, 3, 3, 0, 1, 7], false)]
    #[case::longest_is_begun(&[23, 3, 3, 0xff, 0xff, 7], true)]
    fn half_record_is_known_however_its_bytes_arrive(#[case] bytes: &[u8], #[case] is_within: bool) {
        assert_eq!(Records::default().read(bytes), is_within);
        let mut one_by_one = Records::default();
        let last = bytes.iter().fold(false, |_, byte| one_by_one.read(&[*byte]));
        assert_eq!(last, is_within);
    }

    #[tokio::test]
    async fn bytes_of_both_directions_are_counted() {
        let counter = |name| IntCounter::new(name, "bytes").unwrap();
        let counters = ByteCounters { read: counter("a"), written: counter("b") };
        let (near, mut far) = tokio::io::duplex(64);
        let mut connection = Counted::new(near, counters.clone());
        far.write_all(b"abc").await.unwrap();
        connection.read_exact(&mut [0; 3]).await.unwrap();
        connection.write_all(b"ab").await.unwrap();
        assert_eq!((counters.read.get(), counters.written.get()), (3, 2));
        assert!(connection.within_record().get());
    }
}
