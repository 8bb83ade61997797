//! The list of all JobSets and the boards of open pages, by what the watches observe.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::Revision;
use super::board::{Board, JobSetUpdate};
use super::list::{ListBoard, ListUpdate};
use crate::explain::Explanation;
use crate::mirror::{JobSetKey, Mirror};
use crate::status::JobSetSummary;

/// What all pages show.
#[derive(Debug)]
pub struct Boards {
    revision: Revision,
    complete: bool,
    problems: Vec<String>,
    /// The revision in which the problems or the completeness changed last.
    told: Revision,
    list: ListBoard,
    /// The JobSets whose pages are open. A JobSet that does not exist has no board.
    pages: BTreeMap<JobSetKey, Option<Board>>,
}

impl Default for Boards {
    fn default() -> Self {
        Self {
            // A page that shows nothing gets an update even before anything is observed.
            revision: 1,
            complete: false,
            problems: Vec::new(),
            told: 0,
            list: ListBoard::default(),
            pages: BTreeMap::new(),
        }
    }
}

impl Boards {
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Takes in what has changed until now, and that no controller leads, in a sentence. Says whether a page may show something
    /// else.
    pub fn update(&mut self, mirror: &mut Mirror, absence: Option<&str>, now: Instant) -> bool {
        let revision = self.revision + 1;
        let mut any = false;
        for key in mirror.take_changed() {
            any |= self.take(&key, mirror, revision);
        }
        let problems: Vec<String> = mirror.problems(now).chain(absence).map(str::to_owned).collect();
        if (mirror.is_complete(), &problems) != (self.complete, &self.problems) {
            (self.complete, self.problems, self.told, any) = (mirror.is_complete(), problems, revision, true);
        }
        if any {
            self.revision = revision;
        }
        any
    }

    /// Brings the row of a JobSet and its board, if its page is open, up to date. Says whether either has changed.
    fn take(&mut self, key: &JobSetKey, mirror: &Mirror, revision: Revision) -> bool {
        let page = self.pages.get_mut(key);
        let Some(observed) = mirror.jobset(key) else {
            if let Some(board) = page {
                *board = None;
            }
            return self.list.remove(key, revision);
        };
        let tree = observed.tree();
        // The workers tell more than the status.
        let row = JobSetSummary { state: tree.state, ..JobSetSummary::of(&observed.jobset) };
        let listed = self.list.set(key, row, revision);
        let shown = page
            .zip(mirror.restarts(key))
            .is_some_and(|(board, restarts)| board.get_or_insert_default().update(tree, restarts, revision));
        shown || listed
    }

    /// Makes the board of a JobSet, because its first page opens. JobSets that nobody looks at have none: their Pods would take
    /// memory.
    pub fn open(&mut self, key: &JobSetKey, mirror: &Mirror) {
        self.pages.insert(key.clone(), None);
        if self.take(key, mirror, self.revision + 1) {
            self.revision += 1;
        }
    }

    /// Forgets the board of a JobSet, because its last page is closed.
    pub fn close(&mut self, key: &JobSetKey) {
        self.pages.remove(key);
    }

    /// Takes in an explanation of a JobSet. Says whether it is another one.
    pub fn explain(&mut self, key: &JobSetKey, explanation: Explanation) -> bool {
        let Some(Some(board)) = self.pages.get_mut(key) else { return false };
        let is_other = board.explain(explanation, self.revision + 1);
        if is_other {
            self.revision += 1;
        }
        is_other
    }

    /// The board of a JobSet that exists and whose page is open.
    pub fn board(&self, key: &JobSetKey) -> Option<&Board> {
        self.pages.get(key)?.as_ref()
    }

    /// What has changed on the page of a JobSet since a revision; none if nothing has. 0 is a page that shows nothing.
    pub fn jobset_since(&self, key: &JobSetKey, since: Revision) -> Option<JobSetUpdate<'_>> {
        let board = self.board(key);
        let mut update = JobSetUpdate {
            revision: self.revision,
            complete: self.complete,
            exists: self.list.contains(key),
            problems: &self.problems,
            head: None,
            grid: None,
            cells: Vec::new(),
            restarts: None,
            explanation: None,
        };
        if let Some(board) = board {
            board.add_to(&mut update, since);
        }
        let is_other = since == 0
            || self.told > since
            || self.list.was_removed(key, since)
            || update.head.is_some()
            || update.grid.is_some()
            || !update.cells.is_empty()
            || update.restarts.is_some()
            || update.explanation.is_some();
        is_other.then_some(update)
    }

    /// What has changed in the list of JobSets since a revision; none if nothing has. 0 is a page that shows nothing.
    pub fn list_since<'a>(&'a self, namespace: Option<&'a str>, since: Revision) -> Option<ListUpdate<'a>> {
        let mut update = ListUpdate {
            revision: self.revision,
            complete: self.complete,
            whole: false,
            namespace,
            problems: &self.problems,
            jobsets: Vec::new(),
            removed: Vec::new(),
        };
        self.list.add_to(&mut update, since);
        let is_other = update.whole || self.told > since || !update.jobsets.is_empty() || !update.removed.is_empty();
        is_other.then_some(update)
    }
}
