//! The JobSet that a wait is for, by what the watches observe.

use jobset_api::JobSet;

use super::decision::WaitBaseline;
use crate::mirror::{JobSetKey, Mirror, WatchEvent};
use crate::status::{self, JobSetTree};

/// The JobSet that a wait is for.
#[derive(Debug)]
pub(super) struct Watched {
    key: JobSetKey,
    /// Of the JobSet that existed at first. Another one of the same name does not count.
    uid: Option<String>,
    /// What the JobSet was at first.
    pub(super) baseline: WaitBaseline,
    pub(super) mirror: Mirror,
}

impl Watched {
    /// A JobSet that exists.
    pub(super) fn new(key: JobSetKey, jobset: &JobSet) -> Self {
        let tree = status::report(jobset, &[], &[], None);
        Self { key, uid: jobset.metadata.uid.clone(), baseline: WaitBaseline::of(&tree), mirror: Mirror::default() }
    }

    /// Whether enough has been observed to decide.
    pub(super) fn is_known(&self) -> bool {
        self.mirror.is_complete()
    }

    /// Takes in what a watch has observed.
    pub(super) fn take(&mut self, event: WatchEvent) {
        self.mirror.apply(event);
    }

    /// The JobSet that existed at first, if it still exists.
    pub(super) fn tree(&self) -> Option<JobSetTree> {
        let observed = self.mirror.jobset(&self.key).filter(|observed| observed.uid() == self.uid.as_deref());
        observed?.tree(None)
    }
}
