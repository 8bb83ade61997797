//! A panic costs one JobSet its reconciliations, and no other JobSet anything.
//!
//! The entry of the JobSet may be half changed, so it is dropped, and rebuilt from what the API server lists. The JobSet is
//! reconciled again when its specification changes, or after a while: not on each event, which would panic again.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use jobset_api::{JobSet, JobSetStatus, conditions};
use jobset_rules::Note;
use jobset_store::{Key, dialect};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::progress::{Decision, Progress, UnderWay};
use crate::work::{Now, Work};
use crate::{Engine, Urgency};

/// Time between two tries.
const PAUSE: Duration = Duration::from_mins(5);
/// Reason of the condition while it is true.
const PANICKED: &str = "Panicked";

/// A panic that a JobSet has caused.
#[derive(Debug)]
pub(super) struct InternalError {
    message: String,
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

impl Progress {
    /// The entry has been rebuilt. Returns whether it had been dropped.
    pub(super) fn end_rebuilding(&mut self) -> bool {
        let Some(error) = self.internal_error.as_mut().filter(|error| error.is_rebuilding) else { return false };
        (error.is_rebuilding, error.is_rebuilt) = (false, true);
        true
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
    /// Drops the entry of a JobSet that has caused a panic. An event of no single JobSet may concern all of them.
    pub(super) fn after_panic(&mut self, concerned: Option<&Key>, message: String, now: Instant) {
        self.internal_errors += 1;
        let Some(key) = concerned else {
            let all: Vec<_> = self.store.keys().cloned().collect();
            return all.iter().for_each(|key| self.mark(key, Urgency::Bulk, now));
        };
        if self.store.entry(key).is_none() {
            return;
        }
        self.queue.forget(key);
        let progress = self.progress.entry(key.clone()).or_default();
        let before = std::mem::take(progress).internal_error;
        let generation = self.store.jobset(key).and_then(|jobset| jobset.metadata.generation);
        // A panic while the entry is rebuilt would follow again at once.
        let is_rebuilding = before.as_ref().is_none_or(|before| before.is_rebuilt);
        let is_reported = before.is_some_and(|before| before.is_reported);
        let (is_rebuilt, until) = (false, now + PAUSE);
        progress.internal_error =
            Some(InternalError { message, generation, until, is_reported, is_rebuilding, is_rebuilt });
        self.store.drop_entry(key);
        if self.store.jobset(key).is_some() {
            self.mark(key, Urgency::Urgent, now);
        }
        if is_rebuilding {
            self.store.relist(key.clone());
        }
    }

    /// The work that reports a panic, if it has not been reported.
    pub(super) fn report_internal_error(&mut self, key: &Key, now: Now) -> Option<Work> {
        let entry = self.store.entry(key).filter(|entry| !entry.is_status_missing())?;
        let jobset = entry.jobset.clone()?;
        let progress = self.progress.get_mut(key)?;
        let error = progress.internal_error.as_ref().filter(|error| !error.is_reported)?;
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
        let due = Some((now.instant + PAUSE, Urgency::Urgent));
        let under_way = UnderWay::new(self.number, decision, &[], Urgency::Urgent, now.instant);
        let status = changed.then(|| dialect::encode(status, false));
        let work = Work { status, ..Work::new(key, &under_way, jobset, Vec::new()) };
        progress.under_way = Some(UnderWay { settled: !changed, due, ..under_way });
        Some(work)
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
