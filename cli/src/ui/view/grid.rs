//! The grid of a JobSet's Pods: a cell for each Pod that should exist, in the order of replicatedJobs, Jobs and completion
//! indexes.

use serde::{Serialize, Serializer};

use super::Revision;
use super::cell::{Cell, CellKind};
use crate::status::{JobNode, JobSetTree, PodNode};

/// The most cells of a JobSet for Pods that should exist. A manifest may ask for billions of Pods, and costs no quota while it is
/// suspended. Pods that exist have cells above that.
pub(super) const CELLS: usize = 100_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupLayout {
    pub name: String,
    /// Its Jobs that exist.
    pub jobs: Vec<JobLayout>,
    /// The Pods that should exist and have no cell.
    pub more: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobLayout {
    pub name: String,
    pub pods: usize,
}

/// The cells of a JobSet, and the revision in which each of them changed last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    layout: Vec<GroupLayout>,
    /// The revision of the layout: in it, all cells are new.
    laid_out: Revision,
    /// The revision in which a cell has changed last.
    newest: Revision,
    cells: Vec<Cell>,
    changed: Vec<Revision>,
}

/// A whole grid, for a page that has none, or one with another layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GridSnapshot<'a> {
    /// The replicatedJobs with their Jobs. The cells are in this order.
    pub groups: &'a [GroupLayout],
    pub pods: Vec<&'a str>,
    /// The letters of the states, one for each Pod.
    pub kinds: String,
    pub epochs: Vec<Option<i32>>,
}

/// A changed cell. It is written as its place, the letter of its state, its epoch and the name of its Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellChange<'a> {
    pub place: usize,
    pub cell: &'a Cell,
}

impl Serialize for CellChange<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Cell { pod, kind, epoch } = self.cell;
        (self.place, kind, epoch, pod).serialize(serializer)
    }
}

impl Grid {
    /// Takes in a report. Says whether anything has changed.
    pub fn update(&mut self, tree: &JobSetTree, revision: Revision) -> bool {
        let mut layout = Vec::new();
        let mut cells = Vec::with_capacity(self.cells.len());
        let mut free = CELLS;
        for group in &tree.replicated_jobs {
            let mut laid_out = GroupLayout { name: group.name.clone(), jobs: Vec::new(), more: 0 };
            for job in &group.jobs {
                let wanted = usize::try_from(job.parallelism).unwrap_or(0);
                let expected = wanted.min(free);
                free -= expected;
                let pods = place(job, expected, &mut cells);
                laid_out.more += wanted.saturating_sub(pods);
                laid_out.jobs.push(JobLayout { name: job.name.clone(), pods });
            }
            layout.push(laid_out);
        }
        if layout != self.layout || self.laid_out == 0 {
            let changed = vec![revision; cells.len()];
            *self = Self { layout, laid_out: revision, newest: revision, cells, changed };
            return true;
        }
        let mut any = false;
        for ((cell, known), changed) in cells.into_iter().zip(&mut self.cells).zip(&mut self.changed) {
            if cell != *known {
                (*known, *changed, any) = (cell, revision, true);
            }
        }
        if any {
            self.newest = revision;
        }
        any
    }

    /// The revision in which a cell has changed last.
    pub fn changed(&self) -> Revision {
        self.newest
    }

    /// The whole grid, if a page that shows this revision has another layout or none.
    pub fn snapshot(&self, since: Revision) -> Option<GridSnapshot<'_>> {
        (since < self.laid_out).then(|| GridSnapshot {
            groups: &self.layout,
            pods: self.cells.iter().map(|cell| cell.pod.as_str()).collect(),
            kinds: self.cells.iter().map(|cell| cell.kind.letter()).collect(),
            epochs: self.cells.iter().map(|cell| cell.epoch).collect(),
        })
    }

    /// The cells that have changed since this revision, if the layout has not.
    pub fn changes(&self, since: Revision) -> Vec<CellChange<'_>> {
        if since < self.laid_out {
            return Vec::new();
        }
        let cells = self.cells.iter().zip(&self.changed).enumerate();
        cells
            .filter(|(_, (_, changed))| **changed > since)
            .map(|(place, (cell, _))| CellChange { place, cell })
            .collect()
    }
}

/// Adds the cells of a Job, and returns their number: one for each of the `expected` Pods, and more if there are more Pods. A Pod
/// with a completion index has the cell of this index; of Pods with the same index, the newest has it.
fn place(job: &JobNode, expected: usize, cells: &mut Vec<Cell>) -> usize {
    let first = cells.len();
    cells.resize(first + expected, Cell::default());
    let mut others: Vec<&PodNode> = Vec::new();
    // The Pods are in the order of their indexes, and those of one index from the oldest to the newest.
    for pod in &job.pods {
        match pod.index.and_then(|index| usize::try_from(index).ok()).filter(|index| *index < expected) {
            Some(index) => cells[first + index] = Cell::of(pod),
            None => others.push(pod),
        }
    }
    let mut others = others.into_iter();
    let free = cells[first..].iter_mut().filter(|cell| cell.kind == CellKind::Missing);
    free.zip(&mut others).for_each(|(cell, pod)| *cell = Cell::of(pod));
    cells.extend(others.map(Cell::of));
    cells.len() - first
}
