//! Reads the log of one container, line by line.

use std::io;
use std::pin::Pin;

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use kube::api::LogParams;

use crate::cluster::Cluster;
use crate::error::Error;

/// Longest line, in bytes. A longer one is read as several.
const LONGEST: usize = 64 << 10;

pub(super) struct LogReader {
    body: Pin<Box<dyn AsyncBufRead + Send>>,
    /// Whether the last line that was read goes on.
    is_within: bool,
}

/// A line without its end, or a part of a long one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogLine {
    pub bytes: Vec<u8>,
    /// Whether it is the begin of a line.
    pub begins: bool,
}

impl LogReader {
    pub(super) async fn open(cluster: &Cluster, pod: &str, params: &LogParams) -> Result<Self, Error> {
        Ok(Self { body: Box::pin(cluster.log(pod, params).await?), is_within: false })
    }

    /// The next line; none at the end of the log.
    ///
    /// # Errors
    /// If the connection breaks. What there is of the last line is left out.
    pub(super) async fn next(&mut self) -> io::Result<Option<LogLine>> {
        let begins = !self.is_within;
        let mut bytes = Vec::new();
        loop {
            let part = self.body.fill_buf().await?;
            if part.is_empty() {
                return Ok((!bytes.is_empty()).then_some(LogLine { bytes, begins }));
            }
            let room = part.len().min(LONGEST - bytes.len());
            let end = part[..room].iter().position(|byte| *byte == b'\n');
            bytes.extend(&part[..end.unwrap_or(room)]);
            let read = end.map_or(room, |end| end + 1);
            self.body.as_mut().consume(read);
            if end.is_some() || bytes.len() == LONGEST {
                self.is_within = end.is_none();
                return Ok(Some(LogLine { bytes, begins }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream::{self, TryStreamExt as _};

    use super::*;

    fn reader(parts: Vec<io::Result<Vec<u8>>>) -> LogReader {
        LogReader { body: Box::pin(stream::iter(parts).into_async_read()), is_within: false }
    }

    fn line(text: &str) -> LogLine {
        LogLine { bytes: text.as_bytes().to_vec(), begins: true }
    }

    #[tokio::test]
    async fn log_that_breaks_off_is_an_error() {
        let broken = io::Error::from(io::ErrorKind::ConnectionReset);
        let mut log = reader(vec![Ok(b"a\nb".to_vec()), Ok(b"b\nhalf".to_vec()), Err(broken)]);
        assert_eq!(log.next().await.unwrap(), Some(line("a")));
        assert_eq!(log.next().await.unwrap(), Some(line("bb")));
        assert_eq!(log.next().await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        let mut whole = reader(vec![Ok(b"a\n\nlast".to_vec())]);
        for expected in [Some(line("a")), Some(line("")), Some(line("last")), None] {
            assert_eq!(whole.next().await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn long_line_is_read_in_parts() {
        let mut log = reader(vec![Ok(vec![b'a'; LONGEST + 1]), Ok(b"\nb\n".to_vec())]);
        let parts = [log.next().await, log.next().await, log.next().await];
        let parts = parts.map(|part| part.unwrap().map(|line| (line.bytes.len(), line.begins)));
        assert_eq!(parts, [Some((LONGEST, true)), Some((1, false)), Some((1, true))]);
    }
}
