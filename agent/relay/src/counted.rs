//! Counts the bytes of a connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The counters of one port.
#[derive(Clone, Debug)]
pub(crate) struct ByteCounters {
    pub(crate) read: IntCounter,
    pub(crate) written: IntCounter,
}

/// A connection whose bytes are counted.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    inner: S,
    counters: ByteCounters,
}

impl<S> Counted<S> {
    pub(crate) fn new(inner: S, counters: ByteCounters) -> Self {
        Self { inner, counters }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        self.counters.read.inc_by((buffer.filled().len() - before) as u64);
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

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
    }
}
