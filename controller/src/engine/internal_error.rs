//! A panic costs one JobSet its reconciliations, and no other JobSet anything.
//!
//! The entry of the JobSet may be half changed, so it is dropped, and rebuilt from what the API server lists. The JobSet is
//! reconciled again when its specification changes, or after a while: not on each event, which would panic again.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use jobset_api::{JobSet, JobSetStatus, conditions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::group::Group;
use super::pods::GroupPods;
use super::progress::{Decision, UnderWay};
use super::work::{Now, Work};
use super::{Engine, Key, Urgency, WatchEvent, dialect};
use crate::plan::Note;

/// Time between two tries.
const PAUSE: Duration = Duration::from_mins(5);
/// Reason of the condition while it is true.
const PANICKED: &str = "Panicked";

/// A panic that a JobSet has caused.
#[derive(Debug)]
pub(super) struct InternalError {
    message: String,
    /// The generation that caused it.
    generation: Option<i64>,
    /// When the JobSet is reconciled again although its specification has not changed.
    until: Instant,
    /// Whether the condition was written.
    pub(super) is_reported: bool,
    /// Whether the shell lists the objects of the JobSet.
    is_rebuilding: bool,
    /// Whether the entry has all that exists.
    is_rebuilt: bool,
}

impl InternalError {
    /// Whether the objects have to be listed now: the last rebuilding has panicked, and it is time to try again.
    pub(super) fn begin_rebuilding(&mut self, jobset: Option<&JobSet>, now: Instant) -> bool {
        let begins = !self.is_rebuilt && !self.is_rebuilding && self.is_due(jobset, now);
        if begins {
            (self.is_rebuilding, self.until) = (true, now + PAUSE);
            self.generation = jobset.and_then(|jobset| jobset.metadata.generation);
        }
        begins
    }

    fn is_due(&self, jobset: Option<&JobSet>, now: Instant) -> bool {
        self.until <= now || jobset.is_some_and(|jobset| jobset.metadata.generation != self.generation)
    }

    /// Whether the JobSet has to wait; until when.
    pub(super) fn waits(&self, jobset: Option<&JobSet>, now: Instant) -> Option<Instant> {
        (!self.is_rebuilt || !self.is_due(jobset, now)).then_some(self.until.max(now + Duration::from_secs(1)))
    }
}

thread_local! {
    static CATCHES: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`. Returns the message of its panic, if it panics.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = CATCHES.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    CATCHES.set(before);
    outcome.map_err(|panic| message(&*panic))
}

/// Whether the engine catches a panic that this thread has now. A hook for panics runs before it is caught, and must not end
/// the process then.
pub fn catches_panics() -> bool {
    CATCHES.get()
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown panic".to_owned())
}

impl Engine {
    /// The JobSets whose entries were dropped since the last call, or that can be read now. The shell lists the objects of each, and passes them to
    /// [`Engine::rebuild`].
    pub fn take_dropped(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.dropped)
    }

    /// Fills a dropped entry with listed objects. The watches tell of all others.
    pub fn rebuild(&mut self, key: &Key, objects: Vec<WatchEvent>, now: Instant) {
        let known = objects.into_iter().filter(|event| match event {
            WatchEvent::Put { object, view, .. } => self.indexes[view.kind() as usize].knows(object, view.version()),
            _ => false,
        });
        for event in known.collect::<Vec<_>>() {
            self.see(event, now);
        }
        if let Some(group) = self.groups.get_mut(key)
            && let Some(error) = &mut group.internal_error
            && error.is_rebuilding
        {
            (error.is_rebuilding, error.is_rebuilt) = (false, true);
            self.queue.mark(key, &mut group.progress.turn, Urgency::Urgent, now);
        }
    }

    /// Drops the entry of a JobSet that has caused a panic.
    pub(super) fn drop_entry(&mut self, key: &Key, message: String, now: Instant) {
        let Some(group) = self.groups.get_mut(key) else { return };
        self.queue.forget(key, &mut group.progress.turn);
        let nodes: Vec<_> = group.pods.nodes().cloned().collect();
        // No watch tells of them again.
        let reports = group.pods.reports();
        let Group { jobset, unread, internal_error: before, .. } = std::mem::take(group);
        let generation = jobset.as_ref().and_then(|jobset| jobset.metadata.generation);
        // A panic while the entry is rebuilt would follow again at once.
        let is_rebuilding = before.as_ref().is_none_or(|before| before.is_rebuilt);
        let is_reported = before.is_some_and(|before| before.is_reported);
        let (is_rebuilt, until) = (false, now + PAUSE);
        let internal_error = InternalError { message, generation, until, is_reported, is_rebuilding, is_rebuilt };
        (group.jobset, group.unread, group.internal_error) = (jobset, unread, Some(internal_error));
        group.pods = GroupPods::with_reports(reports);
        if group.jobset.is_some() {
            self.queue.mark(key, &mut group.progress.turn, Urgency::Urgent, now);
        }
        for node in nodes {
            self.cluster.moved(key, None, Some(node));
        }
        self.internal_errors += 1;
        if is_rebuilding {
            self.dropped.push(key.clone());
        }
    }

    /// The work that reports a panic, if it has not been reported.
    pub(super) fn report_internal_error(&mut self, key: &Key, now: Now) -> Option<Work> {
        let group = self.groups.get_mut(key).filter(|group| !group.is_status_missing())?;
        let jobset = group.jobset.clone()?;
        let error = group.internal_error.as_ref().filter(|error| !error.is_reported)?;
        let message = format!(
            "the controller cannot reconcile the JobSet, which is an error of the controller: {}; its Pods go on; the controller \
             tries again when the specification changes, or every {} minutes",
            error.message,
            PAUSE.as_secs() / 60
        );
        let mut status = jobset.status.clone().unwrap_or_default();
        let changed = set(&mut status, true, PANICKED, &message, now);
        let notes = vec![Note::warning(conditions::INTERNAL_ERROR, message)];
        let base = jobset.metadata.resource_version.clone();
        let decision = Some(Decision { base, status: status.clone(), notes, facts: Vec::new() });
        self.number += 1;
        let number = self.number;
        let due = Some((now.instant + PAUSE, Urgency::Urgent));
        let (key, urgency) = (key.clone(), Urgency::Urgent);
        let under_way = UnderWay::new(number, decision, &[], urgency, now.instant);
        group.progress.under_way = Some(UnderWay { settled: !changed, due, ..under_way });
        let status = changed.then(|| dialect::encode(status, false));
        Some(Work {
            key,
            number,
            jobset,
            actions: Vec::new(),
            status,
            status_urgency: urgency,
            urgency,
            confirmed: None,
        })
    }
}

/// A plan was made: the condition, if it is true, is over.
pub(super) fn clear(status: &mut JobSetStatus, now: Now) {
    if conditions::is_true(&status.conditions, conditions::INTERNAL_ERROR) {
        set(status, false, "Recovered", "the JobSet is reconciled again", now);
    }
}

fn set(status: &mut JobSetStatus, is_true: bool, reason: &str, message: &str, now: Now) -> bool {
    conditions::set(&mut status.conditions, conditions::INTERNAL_ERROR, is_true, reason, message, &Time(now.time))
}
