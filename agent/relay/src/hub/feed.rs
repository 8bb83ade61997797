//! What waits for one controller.

use std::collections::VecDeque;

use jobset_stream::{CONTROLLER_FRAME, EVENTS_IN_FRAME};
use tokio_util::bytes::{BufMut as _, Bytes, BytesMut};

use crate::limits::{CONTROLLER_QUEUE, CONTROLLER_QUEUE_BYTES};

/// Events that wait for one controller, each encoded once for all of them.
#[derive(Debug)]
pub(super) struct Feed {
    waiting: VecDeque<Bytes>,
    bytes: usize,
    most: usize,
    most_bytes: usize,
}

impl Feed {
    /// Begins with these events, which do not count against the limits.
    pub(super) fn new(snapshot: VecDeque<Bytes>) -> Self {
        let bytes = snapshot.iter().map(Bytes::len).sum();
        let (most, most_bytes) = (snapshot.len() + CONTROLLER_QUEUE, bytes + CONTROLLER_QUEUE_BYTES);
        Self { waiting: snapshot, bytes, most, most_bytes }
    }

    /// Adds an event. `false` if too much waits.
    pub(super) fn push(&mut self, event: Bytes) -> bool {
        self.bytes += event.len();
        self.waiting.push_back(event);
        self.waiting.len() <= self.most && self.bytes <= self.most_bytes
    }

    /// Takes the oldest events, as the frame [`FromRelay`](jobset_stream::message::FromRelay).
    pub(super) fn frame(&mut self) -> Option<Bytes> {
        let (mut events, mut length) = (0, 1);
        for event in self.waiting.iter().take(EVENTS_IN_FRAME) {
            if events > 0 && length + event.len() + 1 > CONTROLLER_FRAME {
                break;
            }
            (events, length) = (events + 1, length + event.len() + 1);
        }
        if events == 0 {
            return None;
        }
        let mut frame = BytesMut::with_capacity(length);
        for (number, event) in self.waiting.drain(..events).enumerate() {
            frame.put_u8(if number == 0 { b'[' } else { b',' });
            frame.put_slice(&event);
            self.bytes -= event.len();
        }
        frame.put_u8(b']');
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
        Some(frame.freeze())
    }
}
