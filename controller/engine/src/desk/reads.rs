//! Which JobSet is read next. Namespaces share the reads, so that agents of one that name thousands of JobSets delay no others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use jobset_store::Key;

/// Most JobSets that are read at once.
pub(super) const READS: usize = 16;
/// Most JobSets of one namespace that are read at once.
pub(super) const NAMESPACE_READS: usize = 4;

/// The JobSets that hellos wait for and that are not being read, and the number of those that are.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    namespaces: BTreeMap<String, NamespaceReads>,
    under_way: usize,
}

#[derive(Clone, Debug, Default)]
struct NamespaceReads {
    /// By the time of the next read.
    due: BTreeSet<(Instant, Arc<Key>)>,
    under_way: usize,
}

impl NamespaceReads {
    /// When the next read of this namespace may begin.
    fn next(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due).filter(|_| self.under_way < NAMESPACE_READS)
    }
}

impl Reads {
    /// The JobSet is to be read at this time.
    pub(super) fn plan(&mut self, due: Instant, key: &Arc<Key>) {
        self.namespaces.entry(key.namespace.clone()).or_default().due.insert((due, Arc::clone(key)));
    }

    /// The JobSet is not to be read.
    pub(super) fn cancel(&mut self, due: Instant, key: &Arc<Key>) {
        if let Some(reads) = self.namespaces.get_mut(&key.namespace) {
            reads.due.remove(&(due, Arc::clone(key)));
        }
        self.forget(&key.namespace);
    }

    /// When [`Reads::begin`] gives a JobSet although no read has ended.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.under_way >= READS {
            return None;
        }
        self.namespaces.values().filter_map(NamespaceReads::next).min()
    }

    /// The JobSet whose read begins now, if one is due.
    pub(super) fn begin(&mut self, now: Instant) -> Option<Arc<Key>> {
        let first = self.next_due().filter(|due| *due <= now)?;
        let reads = self.namespaces.values_mut().find(|reads| reads.next() == Some(first))?;
        let (_, key) = reads.due.pop_first()?;
        reads.under_way += 1;
        self.under_way += 1;
        Some(key)
    }

    /// A read has ended.
    pub(super) fn end(&mut self, key: &Key) {
        let Some(reads) = self.namespaces.get_mut(&key.namespace) else { return };
        if reads.under_way > 0 {
            reads.under_way -= 1;
            self.under_way = self.under_way.saturating_sub(1);
        }
        self.forget(&key.namespace);
    }

    /// Whether no JobSet is to be read, and none is being read.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.namespaces.is_empty() && self.under_way == 0
    }

    fn forget(&mut self, namespace: &str) {
        let is_idle = |reads: &NamespaceReads| reads.due.is_empty() && reads.under_way == 0;
        if self.namespaces.get(namespace).is_some_and(is_idle) {
            self.namespaces.remove(namespace);
        }
    }
}
