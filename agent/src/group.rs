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
    /// The status has this value.
    pub fn raise_pause(&self, seconds: Option<u32>) {
        self.pause.fetch_max(seconds.unwrap_or(0), Ordering::Relaxed);
    }

    pub fn pause(&self) -> Duration {
        Duration::from_secs(self.pause.load(Ordering::Relaxed).into())
    }

    pub fn set_pods(&self, pods: u32) {
        self.pods.store(pods, Ordering::Relaxed);
    }

    /// 0 if the agent has not watched its JobSet.
    pub fn pods(&self) -> u32 {
        self.pods.load(Ordering::Relaxed)
    }
}
