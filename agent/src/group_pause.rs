//! The longest pause between steps that any worker of the JobSet has survived, as its status says.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The largest value seen, from the stream or the watch, in seconds.
#[derive(Debug, Default)]
pub struct GroupPause(AtomicU32);

impl GroupPause {
    /// The status has this value.
    pub fn raise(&self, seconds: Option<u32>) {
        self.0.fetch_max(seconds.unwrap_or(0), Ordering::Relaxed);
    }

    pub fn get(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed).into())
    }
}
