//! What the page with the list of JobSets shows.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::Revision;
use crate::mirror::JobSetKey;
use crate::status::JobSetSummary;

/// The most deleted JobSets that are remembered. A page that is older gets the whole list.
const REMEMBERED: usize = 1000;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListBoard {
    rows: BTreeMap<JobSetKey, (JobSetSummary, Revision)>,
    /// Deleted JobSets, and when each was deleted.
    removed: VecDeque<(JobSetKey, Revision)>,
    /// The revision of the newest deletion that is forgotten.
    forgotten: Revision,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListUpdate<'a> {
    /// The revision that the page shows with this update.
    pub revision: Revision,
    /// Whether the JobSets have been listed, so that the page is true.
    pub complete: bool,
    /// Whether the rows are the whole list.
    pub whole: bool,
    /// The namespace of all JobSets; none if they are of several namespaces.
    pub namespace: Option<&'a str>,
    /// What cannot be observed at present, in sentences.
    pub problems: &'a [String],
    pub jobsets: Vec<&'a JobSetSummary>,
    /// Namespaces and names of the deleted JobSets.
    pub removed: Vec<(&'a str, &'a str)>,
}

impl ListBoard {
    /// Sets the row of a JobSet. Says whether it is another one.
    pub fn set(&mut self, key: &JobSetKey, row: JobSetSummary, revision: Revision) -> bool {
        match self.rows.get_mut(key) {
            Some((known, _)) if *known == row => return false,
            Some(known) => *known = (row, revision),
            None => {
                self.rows.insert(key.clone(), (row, revision));
            }
        }
        self.removed.retain(|(removed, _)| removed != key);
        true
    }

    /// Removes the row of a JobSet. Says whether there was one.
    pub fn remove(&mut self, key: &JobSetKey, revision: Revision) -> bool {
        if self.rows.remove(key).is_none() {
            return false;
        }
        self.removed.push_back((key.clone(), revision));
        if self.removed.len() > REMEMBERED
            && let Some((_, revision)) = self.removed.pop_front()
        {
            self.forgotten = revision;
        }
        true
    }

    pub(super) fn contains(&self, key: &JobSetKey) -> bool {
        self.rows.contains_key(key)
    }

    /// Whether a JobSet was deleted after this revision.
    pub(super) fn was_removed(&self, key: &JobSetKey, since: Revision) -> bool {
        self.removed.iter().any(|(removed, revision)| removed == key && *revision > since)
    }

    /// Adds what has changed since this revision to an update.
    pub(super) fn add_to<'a>(&'a self, update: &mut ListUpdate<'a>, since: Revision) {
        update.whole = since <= self.forgotten;
        let rows = self.rows.values().filter(|(_, changed)| update.whole || *changed > since);
        update.jobsets = rows.map(|(row, _)| row).collect();
        if !update.whole {
            let removed = self.removed.iter().filter(|(_, removed)| *removed > since);
            update.removed = removed.map(|(key, _)| (key.namespace.as_str(), key.name.as_str())).collect();
        }
    }
}
