//! What an agent knows of its whole group: the newest values, from the stream or the watch.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[derive(Debug, Default)]
pub struct GroupFacts {
    /// The longest pause between steps that any worker of the JobSet has survived, as its status says, in seconds.
    pause: AtomicU32,
    /// Number of Pods of the JobSet, as its specification says.
    pods: AtomicU32,
}

impl GroupFacts {
    /// The JobSet has so many Pods now, and its status this pause in seconds.
    pub fn note(&self, pods: u32, pause: Option<u32>) {
        self.pods.store(pods, Ordering::Relaxed);
        self.pause.fetch_max(pause.unwrap_or(0), Ordering::Relaxed);
    }

    pub fn pause(&self) -> Duration {
        Duration::from_secs(self.pause.load(Ordering::Relaxed).into())
    }

    /// 0 if the agent has not heard of its JobSet.
    pub fn pods(&self) -> u32 {
        self.pods.load(Ordering::Relaxed)
    }
}
