//! How far the Pods of one Job have come, and those that make no progress.

use super::{JobPods, NONE};
use crate::pods::PodView;

impl JobPods {
    /// Open slots whose Pod has told of progress, in any epoch.
    pub fn telling_progress(&self) -> usize {
        self.counts.telling
    }

    /// The Pods of open slots whose worker makes no progress in this epoch.
    pub fn stalled_in(&self, epoch: i32) -> impl Iterator<Item = &PodView> {
        self.standing(self.counts.stalled.get(&epoch).unwrap_or(&NONE))
    }

    /// The highest step that a worker of these Pods has told of.
    pub fn highest_step(&self) -> Option<i64> {
        self.counts.steps.last_key_value().map(|(step, _)| *step)
    }

    /// The last step that a checkpoint of these Pods declared.
    pub fn last_checkpoint(&self) -> Option<i64> {
        self.counts.checkpoints.last_key_value().map(|(step, _)| *step)
    }

    /// The longest pause between steps that a worker of these Pods has survived, in seconds.
    pub fn longest_pause(&self) -> Option<u32> {
        self.counts.pauses.last_key_value().map(|(seconds, _)| *seconds)
    }
}
