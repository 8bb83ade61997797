//! What the engine makes of the answers to its requests.

use std::time::{Duration, Instant};

use jobset_api::JobSet;

use crate::Engine;
use jobset_store::{Change, Key, Versions};

use crate::Urgency;
use crate::progress::{Decision, Progress, UnderWay, Unsent};
use crate::queue::{LONGEST_AFTER_REFUSAL, LONGEST_AFTER_TRANSIENT, TurnEnd};
use crate::slow::{Part, RequestId};
use crate::work::{Confirmed, Effects, Failure, Now, Outcome, RequestError, Stored};

/// How long a plan waits to observe the writes of the one before. They are observed at once; a watch that began again after one
/// of them was undone might never show it.
const CATCH_UP: Duration = Duration::from_secs(5);

impl Engine {
    /// Each request of a work is answered or slow. The work gives its place back.
    pub fn finish(&mut self, key: &Key, number: u64, outcome: Outcome, now: Now) -> Effects {
        self.note_written(&outcome, now);
        self.places.give_back(number);
        for part in &outcome.unanswered {
            self.places.slow.add(RequestId { work: number, part: part.clone() }, key);
        }
        let Some(under_way) = self.progress_of(key).and_then(|progress| progress.under_way_of(number)) else {
            // The JobSet is gone.
            let unanswered = outcome.unanswered.into_iter().map(|part| RequestId { work: number, part });
            unanswered.for_each(|id| self.places.slow.give_up(&id));
            return Effects::default();
        };
        under_way.awaited.retain(|part| outcome.unanswered.contains(part));
        self.take_in(key, number, outcome, false, now)
    }

    /// A slow request is answered, or was cut short.
    pub fn answer(&mut self, key: &Key, id: &RequestId, outcome: Outcome, now: Now) -> Effects {
        self.note_written(&outcome, now);
        self.places.slow.remove(id);
        let Some(progress) = self.progress_of(key) else { return Effects::default() };
        let is_awaited = progress.under_way_of(id.work).is_some_and(|under_way| under_way.awaited.remove(&id.part));
        if !is_awaited && !progress.went_on_without(id) {
            return Effects::default();
        }
        self.take_in(key, id.work, outcome, true, now)
    }

    /// Agents wait for a status that was written.
    fn note_written(&mut self, outcome: &Outcome, now: Now) {
        if let Some(stored) = &outcome.stored {
            self.note_stored(stored, now.instant);
        }
    }

    /// Takes answers in. The turn of the JobSet ends with the last answer that it waits for.
    fn take_in(&mut self, key: &Key, number: u64, mut outcome: Outcome, is_late: bool, now: Now) -> Effects {
        let Some(jobset) = self.store.jobset(key).cloned() else { return Effects::default() };
        if outcome.warning.take().is_some_and(|warning| self.store.set_warning(key, warning)) {
            self.mark(key, Urgency::Bulk, now.instant);
        }
        let Some(progress) = self.progress.get_mut(key) else { return Effects::default() };
        // While the JobSet has an internal error, its report is the only work.
        if let Some(error) = &mut progress.internal_error {
            error.is_reported |= matches!(outcome.status, Some(Ok(_)));
        }
        if !self.store.has_observed(outcome.written) {
            progress.await_writes(outcome.written, now.instant + CATCH_UP);
        }
        if matches!(outcome.status, Some(Ok(true))) {
            progress.unconfirmed = None;
        }
        let confirmed = progress.record(number, outcome, is_late, &jobset, now.instant);
        let Some(under_way) = progress.under_way.take_if(|it| it.number == number && it.awaited.is_empty()) else {
            if progress.under_way_of(number).is_none() {
                // The JobSet went on without this answer. Its next plan has what the request held up.
                let urgency = self.urgency_of(key, Change::Child);
                self.note_refused(key, false, now.instant);
                self.mark(key, urgency, now.instant);
            }
            return Effects { confirmed, ..Effects::default() };
        };
        let (began, failure) = (Some(under_way.began), under_way.failure);
        self.end_turn(key, &under_way, now.instant);
        Effects { confirmed, failure, began }
    }

    /// The turn of a JobSet ends.
    fn end_turn(&mut self, key: &Key, under_way: &UnderWay, now: Instant) {
        let failure = under_way.failure;
        let Some(progress) = self.progress.get(key) else { return };
        // After a transient failure nobody knows that nothing is refused, nor before the whole plan was tried.
        let has_rest = progress.rest.is_some();
        let tried = under_way.settled && under_way.unsent.is_none() && !has_rest;
        self.note_refused(key, tried && failure != Some(Failure::Transient), now);
        match under_way.unsent {
            None => {}
            Some(Unsent::NoPlace) => self.queue.keep_actions(key, now),
            // They are planned again, but those of the kinds that are slow.
            Some(Unsent::Slow) => self.queue.mark(key, under_way.urgency, now),
        }
        // What was observed while the slices of a plan were sent has not been planned for.
        if has_rest || under_way.is_slice {
            self.queue.mark(key, Urgency::Bulk, now);
        }
        let end = match failure {
            Some(Failure::Transient) => TurnEnd::Failed(LONGEST_AFTER_TRANSIENT),
            _ if under_way.status_failure == Some(Failure::Refused) => TurnEnd::Failed(LONGEST_AFTER_REFUSAL),
            Some(Failure::Outdated) => TurnEnd::Outdated,
            _ => TurnEnd::Succeeded(under_way.due),
        };
        self.queue.end(key, end, now);
    }

    /// Tells the rules which requests are refused, if that is known.
    fn note_refused(&mut self, key: &Key, all_were_tried: bool, now: Instant) {
        let Some(progress) = self.progress.get(key) else { return };
        let refused: Vec<String> = progress.refusals.notes().into_iter().map(|(note, _)| note.message).collect();
        let is_known = !refused.is_empty() || all_were_tried && progress.unanswered.is_empty();
        if is_known && self.store.set_refused(key, refused) {
            self.mark(key, Urgency::Urgent, now);
        }
    }
}

impl Progress {
    fn under_way_of(&mut self, number: u64) -> Option<&mut UnderWay> {
        self.under_way.as_mut().filter(|under_way| under_way.number == number)
    }

    /// Whether the JobSet went on without an answer to this request, which it has now.
    fn went_on_without(&mut self, id: &RequestId) -> bool {
        let Part::Action(request) = &id.part else { return false };
        self.unanswered.get(request) == Some(&id.work) && self.unanswered.remove(request).is_some()
    }

    fn await_writes(&mut self, written: Versions, until: Instant) {
        let mut writes = self.unobserved_writes.map(|(versions, _)| versions).unwrap_or_default();
        writes.raise(written);
        self.unobserved_writes = Some((writes, until));
    }

    /// Takes answers to requests of a work in. `is_late` says that the requests were slow.
    fn record(&mut self, number: u64, outcome: Outcome, is_late: bool, jobset: &JobSet, now: Instant) -> Confirmed {
        let Outcome { failures, provided, accepted, status, unanswered, .. } = outcome;
        let (generation, mut due, mut failure) = (jobset.metadata.generation, None, None);
        let mut soonest = |at: Instant| due = due.into_iter().chain([(at, Urgency::Urgent)]).min();
        for request in provided {
            soonest(self.refusals.provided(generation, request, now));
        }
        for (request, error) in failures {
            // The plan is made again, without what is refused.
            self.rest = None;
            self.refusals.failed(request.clone());
            match error.failure {
                // The request alone has its back-off: what made it slow does not hold up the rest of the JobSet.
                Failure::Transient if is_late => soonest(self.refusals.hung(generation, &request, error.note, now)),
                Failure::Refused => {
                    soonest(self.refusals.refused(generation, request, error.note, now));
                    failure = failure.max(Some(error.failure));
                }
                Failure::Transient | Failure::Outdated => failure = failure.max(Some(error.failure)),
            }
        }
        for request in accepted {
            self.refusals.accepted(&request, now);
        }
        if !unanswered.is_empty() {
            self.rest = None;
        }
        let Some(mut under_way) = self.under_way.take_if(|it| it.number == number) else { return Confirmed::default() };
        under_way.unsent = under_way.unsent.or((!unanswered.is_empty()).then_some(Unsent::Slow));
        let goes_on = unanswered.into_iter().filter(|part| !under_way.awaited.contains(part));
        self.unanswered.extend(goes_on.filter_map(|part| match part {
            Part::Action(request) => Some((request, number)),
            Part::Status => None,
        }));
        let mut confirmed = Confirmed::default();
        if let Some(status) = status {
            under_way.status_failure = status.as_ref().err().map(|error| error.failure);
            // A slice of a plan has no status and no Events.
            if let Some(decision) = under_way.decision.take() {
                confirmed = self.record_status(status, decision, is_late, jobset, now);
            }
        }
        under_way.failure = under_way.failure.max(failure).max(under_way.status_failure);
        under_way.due = [under_way.due, due].into_iter().flatten().min();
        self.under_way = Some(under_way);
        confirmed
    }

    /// Takes the answer to a status write in.
    fn record_status(
        &mut self,
        status: Result<bool, RequestError>,
        decision: Decision,
        is_late: bool,
        jobset: &JobSet,
        now: Instant,
    ) -> Confirmed {
        let mut confirmed = Confirmed::default();
        match status {
            Ok(was_written) => {
                if was_written {
                    self.status_hangs = false;
                    self.status_written = Some(now);
                    confirmed.facts = decision.facts;
                }
                let stored = Stored::of(&decision.status);
                confirmed.events = self.events.report(jobset, stored, decision.notes, self.refusals.notes(), now);
            }
            Err(RequestError { failure: Failure::Refused, note }) => {
                let stored = jobset.status.as_ref().map(Stored::of).unwrap_or_default();
                let notes = note.into_iter().collect();
                confirmed.events = self.events.report(jobset, stored, notes, self.refusals.notes(), now);
            }
            Err(RequestError { failure: Failure::Transient, .. }) => {
                self.status_hangs |= is_late;
                self.unconfirmed = Some(decision);
            }
            Err(RequestError { failure: Failure::Outdated, .. }) => {}
        }
        confirmed
    }
}
