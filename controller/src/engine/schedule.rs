//! What the engine does next, and what it makes of the answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jobset_api::{JobSet, JobSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::internal_error::{self, caught};
use super::progress::{Decision, Progress, Rest, UnderWay, differs_in_decisions};
use super::queue::{LONGEST_AFTER_REFUSAL, LONGEST_AFTER_TRANSIENT};
use super::work::{Confirmed, Effects, Failure, Now, Outcome, RequestError, Stored, Work};
use super::{Engine, Group, Key, Place, Urgency, Versions, dialect};
use crate::observe::Observed;
use crate::plan::{Barrier, Plan, barrier, plan};

/// JobSets that are reconciled at once.
pub const PLACES: usize = 16;
/// The same for bulk work, so that urgent work always finds a place.
const BULK_PLACES: usize = 8;
/// The same for one namespace, so that requests that hang, behind a webhook for example, leave places for other namespaces.
const NAMESPACE_PLACES: usize = 12;
/// Actions of one bulk work.
pub const SLICE: usize = 50;
/// Actions of one urgent work. What a plan has beyond that is bulk: the first plans of many new JobSets would otherwise take
/// all places with creations.
const URGENT_SLICE: usize = 8;
/// How long a plan waits to observe the writes of the one before. They are observed at once; a watch that began again after one
/// of them was undone might never show it.
const CATCH_UP: Duration = Duration::from_secs(5);
/// Shortest time between two writes of one status whose difference only people read. The status of a JobSet that restarts in
/// place is sent to thousands of agents.
const STATUS_PAUSE: Duration = Duration::from_secs(1);
/// Shortest time between two plans for bulk changes, for each Job of the JobSet. A plan reads all of them.
const PAUSE_PER_JOB: Duration = Duration::from_micros(25);
/// Failed Jobs whose messages are compared with the patterns of the failure policy in one turn. One takes up to some
/// milliseconds.
const MESSAGES_AT_ONCE: usize = 16;
/// Longest time until a JobSet that asks to be reconciled again is reconciled: the clock by which it asks may be set in between.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

impl Engine {
    /// The next work, if there is a place for it and a JobSet is due. The shell sends its requests and calls [`Engine::finish`].
    pub fn next(&mut self, now: Now) -> Option<Work> {
        self.next_telling(now, |_| ())
    }

    /// The same. `begins` is told each JobSet whose turn begins.
    pub fn next_telling(&mut self, now: Now, begins: impl Fn(&Key)) -> Option<Work> {
        while let Some(key) = self.queue.expired(now.instant) {
            if let Some(group) = self.groups.get_mut(&key) {
                self.queue.expire(&key, &mut group.progress.turn, now.instant);
            }
        }
        loop {
            let (key, urgency) = self.pop()?;
            begins(&key);
            match caught(|| self.begin(&key, urgency, now)) {
                Ok(Some(work)) => {
                    let place = Place { urgency: work.urgency, namespace: work.key.namespace.clone() };
                    self.places.insert(work.number, place);
                    return Some(work);
                }
                Ok(None) => {}
                Err(panic) => self.drop_entry(&key, panic, now.instant),
            }
        }
    }

    /// When [`Engine::next`] may have work although nothing was observed.
    pub fn next_due(&self) -> Option<Instant> {
        self.queue.next_due().filter(|_| self.places.len() < PLACES)
    }

    /// Number of JobSets that wait for their turn.
    pub fn depth(&self) -> usize {
        self.queue.depth()
    }

    /// Since when the JobSet waits that has waited longest with urgent work.
    pub fn oldest_urgent(&self) -> Option<Instant> {
        self.queue.oldest_urgent()
    }

    /// The barrier of a JobSet, if it has one. Unknown until the first plan for its specification.
    pub fn barrier(&self, key: &Key, now: Now) -> Option<Barrier> {
        let observed = Observed::of(self, key).filter(|_| self.group(key).is_some_and(Group::is_judged))?;
        caught(|| barrier(&observed, &self.settings, &Time(now.time))).ok().flatten()
    }

    /// The requests of a work have ended.
    pub fn finish(&mut self, key: &Key, number: u64, outcome: Outcome, now: Now) -> Effects {
        self.places.remove(&number);
        #[cfg(test)]
        let keeps_lost_answer = self.broken == Some(EngineMutation::LostAnswerKept);
        #[cfg(not(test))]
        let keeps_lost_answer = false;
        let Some(group) = self.groups.get_mut(key) else { return Effects::default() };
        let progress = &mut group.progress;
        let Some(under_way) = progress.under_way.take_if(|under_way| under_way.number == number) else {
            return Effects::default();
        };
        let Some(jobset) = group.jobset.clone() else { return Effects::default() };
        let (began, settled) = (under_way.began, under_way.settled && progress.rest.is_none());
        let is_slice = under_way.decision.is_none();
        // While the JobSet has an internal error, its report is the only work.
        if let Some(error) = &mut group.internal_error {
            error.is_reported |= outcome.status.is_ok();
        }
        if !self.observed.reach(outcome.written) {
            progress.await_writes(outcome.written, now.instant + CATCH_UP);
        }
        let status = outcome.status.as_ref().map_or_else(|error| Some(error.failure), |_| None);
        if matches!(outcome.status, Ok(true)) && !keeps_lost_answer {
            progress.unconfirmed = None;
        }
        let end = progress.record(under_way, outcome, &jobset, now.instant);
        let failure = end.worst.as_ref().map(|error| error.failure);
        // After a transient failure nobody knows that nothing is refused, nor before the whole plan was tried.
        let refused: Vec<String> = progress.refusals.notes().into_iter().map(|(note, _)| note.message).collect();
        let is_known = !refused.is_empty() || (settled && failure != Some(Failure::Transient));
        let look_again = is_known && group.set_refused(refused);
        let (turn, queue, at) = (&mut group.progress.turn, &mut self.queue, now.instant);
        if look_again {
            queue.mark(key, turn, Urgency::Urgent, at);
        }
        // What was observed while the slices of a plan were sent has not been planned for.
        if group.progress.rest.is_some() || is_slice {
            queue.mark(key, turn, Urgency::Bulk, at);
        }
        match failure {
            Some(Failure::Transient) => queue.failed(key, turn, at, LONGEST_AFTER_TRANSIENT),
            _ if status == Some(Failure::Refused) => queue.failed(key, turn, at, LONGEST_AFTER_REFUSAL),
            Some(Failure::Outdated) => queue.outdated(key, turn, at),
            _ => queue.succeeded(key, turn, end.due, at),
        }
        Effects { confirmed: end.confirmed, failure, began: Some(began) }
    }

    fn plan(&self, observed: &Observed<'_>, now: Now) -> Plan {
        #[cfg(debug_assertions)]
        super::failpoint::reach(observed.jobset);
        #[cfg_attr(not(test), expect(unused_mut, reason = "only tests change a plan"))]
        let mut plan = plan(observed, &self.settings, &Time(now.time));
        #[cfg(test)]
        if let Some(hook) = &self.hook {
            (hook.0)(observed, &mut plan);
        }
        plan
    }

    /// What would be planned now.
    #[cfg(test)]
    pub(crate) fn plan_now(&self, key: &Key, now: Now) -> Option<(std::sync::Arc<JobSet>, Plan)> {
        let observed = Observed::of(self, key)?;
        Some((observed.jobset.clone(), self.plan(&observed, now)))
    }

    /// Has each plan changed by this.
    #[cfg(test)]
    pub(crate) fn hook(&mut self, hook: PlanHook) {
        self.hook = Some(hook);
    }

    fn pop(&mut self) -> Option<(Key, Urgency)> {
        if self.places.len() >= PLACES {
            return None;
        }
        #[cfg(test)]
        if self.broken == Some(EngineMutation::BulkBeforeUrgent)
            && let Some(key) = self.queue.pop(Urgency::Bulk, |_| true)
        {
            return Some((key, Urgency::Bulk));
        }
        let places = &self.places;
        let may_have_place =
            |namespace: &str| places.values().filter(|place| place.namespace == namespace).count() < NAMESPACE_PLACES;
        if let Some(key) = self.queue.pop(Urgency::Urgent, may_have_place) {
            return Some((key, Urgency::Urgent));
        }
        let bulk = places.values().filter(|place| place.urgency == Urgency::Bulk).count();
        if bulk < BULK_PLACES {
            self.queue.pop(Urgency::Bulk, may_have_place).map(|key| (key, Urgency::Bulk))
        } else {
            None
        }
    }

    /// The turn of a JobSet begins. It ends at once if the JobSet has to wait.
    fn begin(&mut self, key: &Key, urgency: Urgency, now: Now) -> Option<Work> {
        let group = self.groups.get_mut(key)?;
        let (jobs, progress) = (group.jobs.len(), &mut group.progress);
        progress.turn.begin();
        if let Some(error) = &mut group.internal_error {
            if error.begin_rebuilding(group.jobset.as_deref(), now.instant) {
                self.dropped.push(key.clone());
            }
            let until = error.waits(group.jobset.as_deref(), now.instant);
            if let Some(work) = self.report_internal_error(key, now) {
                return Some(work);
            }
            let progress = &mut self.groups.get_mut(key)?.progress;
            if let Some(until) = until {
                self.queue.requeue(key, &mut progress.turn, (until, urgency), now.instant);
                return None;
            }
        }
        let progress = &mut self.groups.get_mut(key)?.progress;
        if urgency == Urgency::Bulk && progress.rest.is_some() {
            return self.next_slice(key, now);
        }
        // What has happened since may have made the rest wrong.
        progress.rest = None;
        let writes = progress
            .unobserved_writes
            .filter(|(written, until)| !self.observed.reach(*written) && now.instant < *until);
        let pause = progress
            .planned
            .map(|planned| planned + PAUSE_PER_JOB.saturating_mul(u32::try_from(jobs).unwrap_or(u32::MAX)));
        let pause = pause.filter(|until| urgency == Urgency::Bulk && now.instant < *until);
        if let Some(until) = writes.map(|(_, until)| until).or(pause) {
            self.queue.requeue(key, &mut progress.turn, (until, urgency), now.instant);
            return None;
        }
        if !self.groups.get_mut(key)?.note_own_rules(MESSAGES_AT_ONCE) {
            let progress = &mut self.groups.get_mut(key)?.progress;
            self.queue.requeue(key, &mut progress.turn, (now.instant, urgency), now.instant);
            return None;
        }
        let progress = &mut self.groups.get_mut(key)?.progress;
        let is_first = progress.planned.is_none();
        (progress.unobserved_writes, progress.planned) = (None, Some(now.instant));
        let Some(observed) = Observed::of(self, key) else {
            let group = self.groups.get_mut(key)?;
            self.queue.succeeded(key, &mut group.progress.turn, None, now.instant);
            return None;
        };
        let (jobset, report_attempts) = (observed.jobset.clone(), observed.report_attempts());
        let mut plan = self.plan(&observed, now);
        let group = self.groups.get_mut(key)?;
        group.internal_error = None;
        internal_error::clear(&mut plan.status, now);
        let progress = &mut group.progress;
        let stored = jobset.status.clone().unwrap_or_default();
        let confirmed = progress.confirm(&jobset, &stored, now.instant);
        let confirmed = confirmed.or_else(|| progress.retell(&jobset, &stored, is_first, now.instant));
        let paused = progress.pause_status(&mut plan, &stored, now.instant);
        let settled = plan.status == stored;
        let withheld = progress.refusals.withhold(jobset.metadata.generation, &mut plan.actions, settled, now.instant);
        let asked = plan.requeue.map(|at| {
            let wait = Duration::try_from(at.duration_since(now.time)).unwrap_or_default();
            now.instant + wait.min(LONGEST_WAIT)
        });
        let urgent = asked.into_iter().chain(withheld).map(|at| (at, Urgency::Urgent));
        let due = urgent.chain(paused.map(|at| (at, Urgency::Bulk))).min();
        let Plan { status, mut actions, notes, facts, .. } = plan;
        progress.refusals.put_failing_last(&mut actions);
        let slice = if urgency == Urgency::Urgent { URGENT_SLICE } else { SLICE };
        if actions.len() > slice {
            let rest = actions.split_off(slice).into_iter();
            progress.rest = Some(Rest { jobset: Arc::clone(&jobset), actions: rest, due, settled });
        }
        self.number += 1;
        let number = self.number;
        let encoded = (!settled).then(|| dialect::encode(status.clone(), report_attempts));
        let decision = Some(Decision { base: jobset.metadata.resource_version.clone(), status, notes, facts });
        progress.under_way = Some(UnderWay { number, decision, settled, due, began: now.instant });
        Some(Work { key: key.clone(), number, jobset, actions, status: encoded, urgency, confirmed })
    }

    /// The next actions of a plan that had many.
    fn next_slice(&mut self, key: &Key, now: Now) -> Option<Work> {
        let group = self.groups.get_mut(key)?;
        let Rest { jobset, mut actions, due, settled } = group.progress.rest.take()?;
        let slice: Vec<_> = actions.by_ref().take(SLICE).collect();
        if actions.len() > 0 {
            group.progress.rest = Some(Rest { jobset: Arc::clone(&jobset), actions, due, settled });
        }
        self.number += 1;
        let number = self.number;
        group.progress.under_way = Some(UnderWay { number, decision: None, settled, due, began: now.instant });
        let (key, urgency) = (key.clone(), Urgency::Bulk);
        Some(Work { key, number, jobset, actions: slice, status: None, urgency, confirmed: None })
    }
}

/// A broken rule of the engine.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineMutation {
    /// Bulk work has its turn first.
    BulkBeforeUrgent,
    /// A write whose answer was lost stays unconfirmed when it was repeated.
    LostAnswerKept,
}

/// A change of a plan, or a panic.
#[cfg(test)]
pub(crate) type PlanEdit = dyn Fn(&Observed<'_>, &mut Plan);

/// Changes each plan.
#[cfg(test)]
pub(crate) struct PlanHook(pub(crate) Box<PlanEdit>);

#[cfg(test)]
impl std::fmt::Debug for PlanHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlanHook")
    }
}

/// How a work ended.
struct WorkEnd {
    confirmed: Confirmed,
    /// The failure that decides when the next reconciliation is; of several alike, the first.
    worst: Option<RequestError>,
    due: Option<(Instant, Urgency)>,
}

impl Progress {
    fn await_writes(&mut self, written: Versions, until: Instant) {
        let mut writes = self.unobserved_writes.map(|(versions, _)| versions).unwrap_or_default();
        writes.raise(written);
        self.unobserved_writes = Some((writes, until));
    }

    /// Takes a status write out of the plan that nobody waits for, if the last write is too recent. Returns when it is due.
    fn pause_status(&self, plan: &mut Plan, stored: &JobSetStatus, now: Instant) -> Option<Instant> {
        let due = self.status_written.map(|written| written + STATUS_PAUSE).filter(|due| now < *due)?;
        if plan.status == *stored || !plan.facts.is_empty() || differs_in_decisions(stored, &plan.status) {
            return None;
        }
        plan.status = stored.clone();
        Some(due)
    }

    /// Takes the answers in.
    fn record(&mut self, under_way: UnderWay, outcome: Outcome, jobset: &JobSet, now: Instant) -> WorkEnd {
        let Outcome { failures, provided, accepted, status, .. } = outcome;
        let generation = jobset.metadata.generation;
        let mut due = under_way.due;
        let mut soonest = |at: Instant| due = due.into_iter().chain([(at, Urgency::Urgent)]).min();
        for request in provided {
            soonest(self.refusals.provided(generation, request, now));
        }
        let mut worst: Option<RequestError> = None;
        let mut add = |error: RequestError| {
            if worst.as_ref().is_none_or(|worst| worst.failure < error.failure) {
                worst = Some(error);
            }
        };
        for (request, error) in failures {
            if error.failure == Failure::Refused {
                soonest(self.refusals.refused(generation, request.clone(), error.note.clone(), now));
            }
            // The plan is made again, without what is refused.
            self.rest = None;
            self.refusals.failed(request);
            add(error);
        }
        for request in accepted {
            self.refusals.accepted(&request, now);
        }
        // A slice of a plan has no status and no Events.
        let Some(decision) = under_way.decision else { return WorkEnd { confirmed: Confirmed::default(), worst, due } };
        let mut confirmed = Confirmed::default();
        match status {
            Ok(was_written) => {
                if was_written {
                    self.status_written = Some(now);
                    confirmed.facts = decision.facts;
                }
                let stored = Stored::of(&decision.status);
                confirmed.events = self.events.report(jobset, stored, decision.notes, self.refusals.notes(), now);
            }
            Err(error) => {
                match error.failure {
                    Failure::Refused => {
                        let stored = jobset.status.as_ref().map(Stored::of).unwrap_or_default();
                        let notes = error.note.clone().into_iter().collect();
                        confirmed.events = self.events.report(jobset, stored, notes, self.refusals.notes(), now);
                    }
                    Failure::Transient => self.unconfirmed = Some(decision),
                    Failure::Outdated => {}
                }
                add(error);
            }
        }
        WorkEnd { confirmed, worst, due }
    }
}
