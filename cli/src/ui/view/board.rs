//! What the page of one JobSet shows.

use serde::Serialize;

use super::Revision;
use super::grid::{CellChange, Grid, GridSnapshot};
use crate::explain::Explanation;
use crate::restarts::RestartReport;
use crate::status::JobSetTree;

/// A part of a page, and the revision in which it changed last.
#[derive(Clone, Debug, PartialEq)]
struct Versioned<T> {
    value: Option<T>,
    changed: Revision,
}

impl<T> Default for Versioned<T> {
    fn default() -> Self {
        Self { value: None, changed: 0 }
    }
}

impl<T: PartialEq> Versioned<T> {
    /// Sets the value. Says whether it is another one.
    fn set(&mut self, value: T, revision: Revision) -> bool {
        if self.value.as_ref() == Some(&value) {
            return false;
        }
        *self = Self { value: Some(value), changed: revision };
        true
    }

    fn since(&self, since: Revision) -> Option<&T> {
        self.value.as_ref().filter(|_| self.changed > since)
    }
}

/// What the page of one JobSet shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Board {
    /// The report of `status` without Jobs and Pods.
    head: Versioned<JobSetTree>,
    grid: Grid,
    restarts: Versioned<RestartReport>,
    explanation: Versioned<Explanation>,
}

/// The parts of a page that have changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSetUpdate<'a> {
    /// The revision that the page shows with this update.
    pub revision: Revision,
    /// Whether the objects of the JobSet have been listed, so that the page is true.
    pub complete: bool,
    pub exists: bool,
    /// What cannot be observed at present, in sentences.
    pub problems: &'a [String],
    /// The report of `status` without Jobs and Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<&'a JobSetTree>,
    /// The whole grid of Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<GridSnapshot<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellChange<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<&'a RestartReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<&'a Explanation>,
}

impl Board {
    /// Takes in the reports of a JobSet. Says whether anything has changed.
    pub fn update(&mut self, mut tree: JobSetTree, restarts: RestartReport, revision: Revision) -> bool {
        let grid = self.grid.update(&tree, revision);
        // The grid has the Pods. Freeing the tree's here keeps thousands of names out of memory.
        tree.replicated_jobs.iter_mut().for_each(|group| group.jobs = Vec::new());
        tree.other_pods = Vec::new();
        let head = self.head.set(tree, revision);
        let restarts = self.restarts.set(restarts, revision);
        grid || head || restarts
    }

    /// Takes in an explanation. Says whether it is another one.
    pub fn explain(&mut self, explanation: Explanation, revision: Revision) -> bool {
        self.explanation.set(explanation, revision)
    }

    /// The revision in which the JobSet has changed last. Its explanation does not count.
    pub fn changed(&self) -> Revision {
        self.head.changed.max(self.grid.changed()).max(self.restarts.changed)
    }

    pub fn head(&self) -> Option<&JobSetTree> {
        self.head.value.as_ref()
    }

    /// Adds what has changed since this revision to an update.
    pub(super) fn add_to<'a>(&'a self, update: &mut JobSetUpdate<'a>, since: Revision) {
        update.head = self.head.since(since);
        update.grid = self.grid.snapshot(since);
        update.cells = self.grid.changes(since);
        update.restarts = self.restarts.since(since);
        update.explanation = self.explanation.since(since);
    }
}
