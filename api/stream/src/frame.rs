//! Frames: a length of four bytes, and a message in JSON.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::{SinkExt, Stream, StreamExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::bytes::Bytes;
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};

/// Bytes that a connection reserves for reading, and for writing. Agents are many, and most of their messages are short.
const RESERVED: usize = 512;
/// Bytes of the length of a frame.
const LENGTH: usize = 4;

/// Reads frames. Dropping the future of [`Reader::next`] loses nothing.
#[derive(Debug)]
pub struct Reader<R> {
    frames: FramedRead<Source<R>, LengthDelimitedCodec>,
    /// Bytes of the frames that have been read, with their lengths.
    complete: u64,
}

/// Counts the bytes that are read.
#[derive(Debug)]
struct Source<R> {
    inner: R,
    bytes: u64,
}

impl<R: AsyncRead + Unpin> AsyncRead for Source<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        self.bytes += (buffer.filled().len() - before) as u64;
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Reads frames of at most `limit` bytes.
    pub fn new(source: R, limit: usize) -> Self {
        let source = Source { inner: source, bytes: 0 };
        Self { frames: FramedRead::with_capacity(source, codec(limit), RESERVED), complete: 0 }
    }

    /// The next message; `None` after the last.
    ///
    /// # Errors
    /// The connection has failed, the frame is too long, or it is not such a message.
    pub async fn next<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        let Some(frame) = self.frames.next().await.transpose()? else { return Ok(None) };
        self.complete += (LENGTH + frame.len()) as u64;
        serde_json::from_slice(&frame).map(Some).map_err(io::Error::from)
    }

    /// Whether a part of a frame has arrived, and the rest has not.
    pub fn is_within_frame(&self) -> bool {
        self.complete < self.frames.get_ref().bytes
    }

    /// All messages as a stream, which ends with the connection or the first error.
    pub fn messages<M: DeserializeOwned>(self) -> impl Stream<Item = io::Result<M>> {
        self.frames.map(|frame| serde_json::from_slice(&frame?).map_err(io::Error::from))
    }
}

#[derive(Debug)]
pub struct Writer<W>(FramedWrite<W, LengthDelimitedCodec>);

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Writes frames of at most `limit` bytes. Longer messages are errors.
    pub fn new(sink: W, limit: usize) -> Self {
        let mut framed = FramedWrite::with_capacity(sink, codec(limit), RESERVED);
        framed.set_backpressure_boundary(RESERVED);
        Self(framed)
    }

    /// Writes one message, and everything before it.
    pub async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.send_encoded(encode(message)?).await
    }

    /// Writes one message that is encoded, and everything before it.
    pub async fn send_encoded(&mut self, message: Bytes) -> io::Result<()> {
        self.0.send(message).await
    }

    /// Adds one message that is encoded to what is written with the next [`Writer::send`] or [`Writer::flush`].
    pub async fn feed_encoded(&mut self, message: Bytes) -> io::Result<()> {
        self.0.feed(message).await
    }

    pub async fn flush(&mut self) -> io::Result<()> {
        SinkExt::<Bytes>::flush(&mut self.0).await
    }
}

/// Encodes a message once, for several connections.
pub fn encode(message: &impl Serialize) -> io::Result<Bytes> {
    Ok(serde_json::to_vec(message)?.into())
}

fn codec(limit: usize) -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().length_field_length(LENGTH).max_frame_length(limit).new_codec()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::message::{FromAgent, Report};

    fn report(epoch: i32) -> FromAgent {
        FromAgent::Report(Report { epoch, exit: None, started: None, progress: None })
    }

    #[tokio::test]
    async fn messages_arrive_in_order_and_end_with_the_connection() {
        let (near, far) = tokio::io::duplex(64);
        let sent = tokio::spawn(async move {
            let mut writer = Writer::new(near, 1024);
            writer.feed_encoded(encode(&report(1)).unwrap()).await.unwrap();
            writer.send(&report(2)).await.unwrap();
        });
        let mut reader = Reader::new(far, 1024);
        assert_eq!(reader.next().await.unwrap(), Some(report(1)));
        assert_eq!(reader.next().await.unwrap(), Some(report(2)));
        assert_eq!(reader.next::<FromAgent>().await.unwrap(), None);
        sent.await.unwrap();
    }

    #[tokio::test]
    async fn frame_above_limit_is_an_error() {
        let (mut near, far) = tokio::io::duplex(64);
        near.write_all(&2000_u32.to_be_bytes()).await.unwrap();
        let error = Reader::new(far, 1024).next::<FromAgent>().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn reader_knows_of_a_frame_that_has_begun() {
        let (mut near, far) = tokio::io::duplex(64);
        let mut reader = Reader::new(far, 1024);
        assert!(!reader.is_within_frame());
        // The length alone is the beginning of a frame, too.
        for part in [&[0, 0][..], &[0, 2], b"{"] {
            near.write_all(part).await.unwrap();
            let next = reader.next::<serde_json::Value>();
            assert!(tokio::time::timeout(std::time::Duration::ZERO, next).await.is_err());
            assert!(reader.is_within_frame());
        }
        near.write_all(b"}").await.unwrap();
        reader.next::<serde_json::Value>().await.unwrap();
        assert!(!reader.is_within_frame());
    }

    #[tokio::test]
    async fn frame_that_is_no_message_is_an_error() {
        let (near, far) = tokio::io::duplex(64);
        let mut writer = Writer::new(near, 1024);
        writer.send(&"no message").await.unwrap();
        assert!(Reader::new(far, 1024).next::<FromAgent>().await.is_err());
    }
}
