//! What the engine does next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jobset_api::JobSetStatus;
use jobset_rules::{Barrier, Plan, Settings, barrier, plan};
use jobset_store::{Entry, Key, Observed, dialect, differs_in_decisions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::internal_error::{self, caught};
use crate::places::WorkClass;
use crate::progress::{Decision, Progress, Rest, UnderWay, Unsent};
use crate::queue::{LONGEST_AFTER_TRANSIENT, List, TurnEnd};
use crate::slow::RequestId;
use crate::work::{Now, Work};
use crate::{Engine, Urgency};

/// Actions of one bulk work.
pub const SLICE: usize = 50;
/// Actions of one urgent work. What a plan has beyond that is bulk: the first plans of many new JobSets would otherwise take
/// all places with creations.
const URGENT_SLICE: usize = 8;
/// Shortest time between two writes of one status whose difference only people read. The status of a JobSet that restarts in
/// place is sent to thousands of agents.
const STATUS_PAUSE: Duration = Duration::from_secs(1);
/// Shortest time between two plans for bulk changes, for each Job of the JobSet. A plan reads all of them.
const PAUSE_PER_JOB: Duration = Duration::from_micros(25);
/// Failed Jobs whose messages are compared with the patterns of the failure policy in one turn of the loop. One can take a tenth of a
/// second.
const MESSAGES_AT_ONCE: usize = 1;
/// Longest time until a JobSet that asks to be reconciled again is reconciled: the clock by which it asks may be set in between.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

impl Engine {
    /// The next work, if there is a place for it and a JobSet is due. The shell sends its requests and calls [`Engine::finish`].
    pub fn next(&mut self, now: Now) -> Option<Work> {
        self.next_by(now, plan)
    }

    pub fn next_by(&mut self, now: Now, plan: impl Fn(&Observed<'_>, &Settings, &Time) -> Plan) -> Option<Work> {
        self.look_for_agents(now.instant);
        self.queue.expire(now.instant);
        loop {
            let (key, urgency) = self.pop()?;
            match caught(|| self.begin(&key, urgency, now, &plan)) {
                Ok(Some((work, class))) => {
                    self.places.take(work.number, class, work.urgency, &work.key.namespace);
                    return Some(work);
                }
                // Others have their turn before the next comparison.
                Ok(None) if self.progress.get(&key).is_some_and(|progress| progress.is_comparing) => return None,
                Ok(None) => {}
                Err(panic) => self.after_panic(Some(&key), panic, now.instant),
            }
        }
    }

    /// When [`Engine::next`] may have work although nothing was observed.
    pub fn next_due(&self) -> Option<Instant> {
        self.queue.next_due().into_iter().chain(self.stream.next_due()).min()
    }

    /// The slow requests that the shell must cut short. Each of them is answered all the same: with nothing.
    pub fn take_cut(&mut self) -> Vec<RequestId> {
        self.places.slow.take_cut()
    }

    pub fn slow_requests(&self) -> usize {
        self.places.slow.len()
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
        let observed =
            Observed::of(&self.store, key).filter(|_| self.store.entry(key).is_some_and(Entry::is_judged))?;
        caught(|| barrier(&observed, &self.settings, &Time(now.time))).ok().flatten()
    }

    fn pop(&mut self) -> Option<(Key, Urgency)> {
        let free = self.places.free();
        self.queue.order.0.into_iter().find_map(|list| {
            let may = |namespace: &str| match list {
                List::Actions => free.admit_actions(namespace, Urgency::Urgent),
                List::Urgent => free.admit(namespace),
                List::Bulk => free.admit_actions(namespace, Urgency::Bulk),
            };
            let urgency = if list == List::Bulk { Urgency::Bulk } else { Urgency::Urgent };
            Some((self.queue.pop(list, may)?, urgency))
        })
    }

    /// The turn of a JobSet begins. It ends at once if the JobSet has to wait.
    fn begin(
        &mut self,
        key: &Key,
        urgency: Urgency,
        now: Now,
        plan: &impl Fn(&Observed<'_>, &Settings, &Time) -> Plan,
    ) -> Option<(Work, WorkClass)> {
        let progress = self.progress.get_mut(key)?;
        progress.is_comparing = false;
        if let Some(error) = &mut progress.internal_error {
            let jobset = self.store.jobset(key).cloned();
            if error.begin_rebuilding(jobset.as_deref(), now.instant) {
                self.store.relist(key.clone());
            }
            let until = error.waits(jobset.as_deref(), now.instant);
            if let Some(work) = self.report_internal_error(key, now) {
                return Some((work, WorkClass::Status));
            }
            if let Some(until) = until {
                self.queue.end(key, TurnEnd::Requeued((until, urgency)), now.instant);
                return None;
            }
        }
        let progress = self.progress.get_mut(key)?;
        if urgency == Urgency::Bulk && progress.rest.is_some() {
            return self.next_slice(key, now).map(|work| (work, WorkClass::Actions));
        }
        if progress.status_hangs && !self.places.admit_probe(&key.namespace) {
            self.queue.end(key, TurnEnd::Failed(LONGEST_AFTER_TRANSIENT), now.instant);
            return None;
        }
        // What has happened since may have made the rest wrong.
        progress.rest = None;
        if let Some(until) = self.waits(key, urgency, now.instant) {
            self.queue.end(key, TurnEnd::Requeued((until, urgency)), now.instant);
            return None;
        }
        let progress = self.progress.get_mut(key)?;
        let is_first = progress.planned.is_none();
        (progress.unobserved_writes, progress.planned) = (None, Some(now.instant));
        let Some(observed) = Observed::of(&self.store, key) else {
            self.queue.end(key, TurnEnd::Succeeded(None), now.instant);
            return None;
        };
        let observed = observed.with_agents(self.stream.agents(key, now.instant));
        let (jobset, report_attempts) = (observed.jobset.clone(), observed.report_attempts());
        let mut plan = plan(&observed, &self.settings, &Time(now.time));
        if let Some(misses_agents) = plan.misses_agents {
            self.stream.note_missing(key, misses_agents, now.instant);
        }
        let progress = self.progress.get_mut(key)?;
        progress.internal_error = None;
        internal_error::clear(&mut plan.status, now);
        let stored = jobset.status.clone().unwrap_or_default();
        let confirmed = progress.confirm(&jobset, &stored, now.instant);
        let confirmed = confirmed.or_else(|| progress.retell(&jobset, &stored, is_first, now.instant));
        let paused = progress.pause_status(&mut plan, &stored, now.instant);
        let settled = plan.status == stored;
        let withheld = progress.refusals.withhold(jobset.metadata.generation, &mut plan.actions, settled, now.instant);
        plan.actions.retain(|action| !progress.is_unanswered(action));
        let no_probe = !self.places.admit_probe(&key.namespace);
        let delayed = no_probe.then(|| progress.refusals.delay_probes(&mut plan.actions, now.instant)).flatten();
        let asked = plan.requeue.map(|at| {
            let wait = Duration::try_from(at.duration_since(now.time)).unwrap_or_default();
            now.instant + wait.min(LONGEST_WAIT)
        });
        let urgent = [asked, withheld, delayed].into_iter().flatten().map(|at| (at, Urgency::Urgent));
        let due = urgent.chain(paused.map(|at| (at, Urgency::Bulk))).min();
        let Plan { status, mut actions, notes, facts, .. } = plan;
        progress.status_hangs &= !settled;
        let is_probe = progress.status_hangs || actions.iter().any(|action| progress.refusals.is_probe(action));
        let has_place = is_probe || actions.is_empty() || self.places.free().admit_actions(&key.namespace, urgency);
        let unsent = (!has_place).then_some(Unsent::NoPlace);
        if !has_place {
            actions.clear();
        }
        progress.refusals.put_failing_last(&mut actions);
        let slice = if urgency == Urgency::Urgent { URGENT_SLICE } else { SLICE };
        if actions.len() > slice {
            let rest = actions.split_off(slice).into_iter();
            progress.rest = Some(Rest { jobset: Arc::clone(&jobset), actions: rest, due, settled });
        }
        self.number += 1;
        let encoded = (!settled).then(|| dialect::encode(status.clone(), report_attempts));
        let decides = !settled && differs_in_decisions(&stored, &status);
        let status_urgency = if decides { Urgency::Urgent } else { urgency };
        let decision = Some(Decision { base: jobset.metadata.resource_version.clone(), status, notes, facts });
        let under_way = UnderWay::new(self.number, decision, &actions, urgency, now.instant);
        let class = match actions.is_empty() {
            _ if is_probe => WorkClass::Probe,
            true => WorkClass::Status,
            false => WorkClass::Actions,
        };
        let work = Work::new(key, &under_way, jobset, actions);
        progress.under_way = Some(UnderWay { settled, due, unsent, ..under_way });
        Some((Work { status: encoded, status_urgency, confirmed, ..work }, class))
    }

    /// Until when the next plan of a JobSet waits, if it does: for the writes of the last one, or because plans of so many Jobs
    /// would leave no time for others, or because not all of its messages are matched yet.
    fn waits(&mut self, key: &Key, urgency: Urgency, now: Instant) -> Option<Instant> {
        let jobs = self.store.entry(key).map_or(0, |entry| u32::try_from(entry.jobs.len()).unwrap_or(u32::MAX));
        let progress = self.progress.get_mut(key)?;
        let writes =
            progress.unobserved_writes.filter(|(written, until)| !self.store.has_observed(*written) && now < *until);
        let pause = progress.planned.map(|planned| planned + PAUSE_PER_JOB.saturating_mul(jobs));
        let pause = pause.filter(|until| urgency == Urgency::Bulk && now < *until);
        let wait = writes.map(|(_, until)| until).or(pause);
        if wait.is_none() {
            progress.is_comparing = !self.store.note_own_rules(key, MESSAGES_AT_ONCE);
        }
        wait.or(progress.is_comparing.then_some(now))
    }

    /// The next actions of a plan that had many.
    fn next_slice(&mut self, key: &Key, now: Now) -> Option<Work> {
        let progress = self.progress.get_mut(key)?;
        let Rest { jobset, mut actions, due, settled } = progress.rest.take()?;
        let slice: Vec<_> = actions.by_ref().take(SLICE).collect();
        if actions.len() > 0 {
            progress.rest = Some(Rest { jobset: Arc::clone(&jobset), actions, due, settled });
        }
        self.number += 1;
        let under_way = UnderWay::new(self.number, None, &slice, Urgency::Bulk, now.instant);
        let work = Work::new(key, &under_way, jobset, slice);
        progress.under_way = Some(UnderWay { settled, due, ..under_way });
        Some(work)
    }
}

impl Progress {
    /// Takes a status write out of the plan that nobody waits for, if the last write is too recent. Returns when it is due.
    fn pause_status(&self, plan: &mut Plan, stored: &JobSetStatus, now: Instant) -> Option<Instant> {
        let due = self.status_written.map(|written| written + STATUS_PAUSE).filter(|due| now < *due)?;
        if plan.status == *stored || !plan.facts.is_empty() || differs_in_decisions(stored, &plan.status) {
            return None;
        }
        plan.status = stored.clone();
        Some(due)
    }
}
