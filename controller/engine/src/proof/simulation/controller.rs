//! The controller: the engine that runs in the cluster. Its requests are sent one at a time, so that it can crash between any two.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use jobset_api::{JobSet, JobSetStatus, conditions};
use jobset_rules::{Action, Fact, Plan};
use jobset_store::{Kind, Observed, Versions, View, WatchEvent, dialect};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::cluster::SimulatedCluster;
use super::planner::Planner;
use super::scenario::{Scenario, key};
use super::slow::SlowRequest;
use super::steps::ToldSteps;
use super::watches::KINDS;
use crate::proof::mutation::edit_event;
use crate::proof::{CheckResult, Property, RuleMutation, Violation, ensure};
use crate::queue::{List, Order};
use crate::{Confirmed, Engine, Failure, GroupSnapshot, Now, Outcome, Request, RequestError, Urgency, Work};

/// One life of the controller.
#[derive(Debug)]
pub(super) struct SimulatedController {
    pub engine: Engine,
    pub planner: Planner,
    /// The monotonic time at which the simulation began.
    start: Instant,
    /// Whether the answer to the next status write that begins an epoch gets lost.
    pub loses_answer: bool,
    /// Whether the last answer was lost.
    lost_answer: bool,
    /// Works on the JobSets of other tenants.
    pub others: VecDeque<Work>,
    /// Epochs that this controller has begun, and those of them that it has counted in its metrics. A panic may cost some.
    lifts: Option<(i32, usize)>,
    /// Requests that failed when they were sent last.
    pub failing: HashSet<Request>,
    pub work: Option<WorkUnderWay>,
    /// Requests that their works have ended without.
    pub slow: VecDeque<SlowRequest>,
}

/// A work whose requests are being sent.
#[derive(Debug)]
pub(super) struct WorkUnderWay {
    pub number: u64,
    pub base: Arc<JobSet>,
    pub actions: VecDeque<Action>,
    status: Option<JobSetStatus>,
    /// How the write of the status ended, once it was tried.
    status_answer: Option<Result<bool, RequestError>>,
    /// Decides which of the requests that have no order is carried out next.
    pub order: Rng,
    pub written: Versions,
    pub failures: Vec<(Request, RequestError)>,
    pub accepted: HashSet<Request>,
    pub provided: Vec<Request>,
    /// The actions that are slow.
    pub slow: Vec<SlowRequest>,
    /// What is wrong with the status, unless its write is refused as outdated.
    objection: Option<Violation>,
    /// What Pods had told of their steps when it was decided.
    told: ToldSteps,
    /// The Pods outside of the specified size that were observed when it was decided.
    leaving: BTreeSet<String>,
}

impl SimulatedController {
    /// A controller that has listed the kinds that nobody has here.
    pub(super) fn new(broken: Option<RuleMutation>, scenario: &Scenario) -> Self {
        let (mut engine, start) = (Engine::new(scenario.settings.clone()), Instant::now());
        let planner = Planner { broken, has_extremes: scenario.has_extremes, ..Planner::default() };
        for kind in [Kind::Claim, Kind::RoleBinding, Kind::Node, Kind::Namespace, Kind::PriorityClass] {
            engine.apply(WatchEvent::ListingEnded(kind), start);
        }
        if broken == Some(RuleMutation::BulkBeforeUrgent) {
            engine.queue.order = Order([List::Bulk, List::Actions, List::Urgent]);
        }
        Self {
            engine,
            planner,
            others: VecDeque::new(),
            lost_answer: false,
            start,
            loses_answer: false,
            lifts: Some((0, 0)),
            failing: HashSet::new(),
            work: None,
            slow: VecDeque::new(),
        }
    }

    /// What would be planned now.
    pub(super) fn plan_now(&self, now: Now) -> Option<(Arc<JobSet>, Plan)> {
        let observed = Observed::of(&self.engine.store, key())?;
        Some((observed.jobset.clone(), self.planner.plan(&observed, &self.engine.settings, &Time(now.time))))
    }

    pub(super) fn note_failing(&mut self, outcome: &Outcome) {
        self.failing.retain(|request| !outcome.accepted.contains(request));
        self.failing.extend(outcome.failures.iter().map(|(request, _)| request.clone()));
    }

    pub(super) fn note_lifts(&mut self, confirmed: &Confirmed) {
        if let Some((_, counted)) = &mut self.lifts {
            *counted += confirmed.facts.iter().filter(|fact| **fact == Fact::BarrierLifted).count();
        }
    }
}

impl SimulatedCluster {
    /// The metrics count each epoch that this controller has begun once, although answers get lost.
    pub(super) fn check_facts(&self) -> CheckResult {
        let Some((begun, counted)) = self.controller.lifts else { return Ok(()) };
        ensure(usize::try_from(begun) == Ok(counted), Property::Facts, || {
            format!("the controller has begun {begun} epochs and counted {counted}")
        })
    }

    /// The time of the controller, this long after the time of the simulation.
    pub(super) fn controller_now(&self, later: Duration) -> Now {
        let elapsed = Duration::from_millis(self.clock.try_into().unwrap_or_default());
        Now { instant: self.controller.start + elapsed + later, time: self.now().0 }
    }

    /// The next event of one stream arrives.
    pub(super) fn deliver(&mut self, kind: Kind) -> CheckResult {
        let Some(event) = self.api.watches.receive(kind) else { return Ok(()) };
        let now = self.controller_now(Duration::ZERO).instant;
        let controller = &mut self.controller;
        self.worked = true;
        let Some(event) = edit_event(self.broken, event) else { return Ok(()) };
        let observed = match &event {
            WatchEvent::Put { view: View::JobSet(jobset), object, .. } if object == key() => {
                Some(GroupSnapshot::of(jobset))
            }
            _ => None,
        };
        controller.engine.apply(event, now);
        if let Some(observed) = observed {
            self.tell_desk(observed)?;
        }
        if kind == Kind::Pod { self.check_counts() } else { Ok(()) }
    }

    pub(super) fn deliver_all(&mut self) -> CheckResult {
        for kind in KINDS {
            while self.api.watches.has(kind) {
                self.deliver(kind)?;
            }
        }
        Ok(())
    }

    /// The controller starts its next work, if it has any.
    pub(super) fn start_work(&mut self) -> CheckResult {
        self.start_work_later(Duration::ZERO)
    }

    pub(super) fn start_work_later(&mut self, later: Duration) -> CheckResult {
        let now = self.controller_now(later);
        let SimulatedController { engine, planner, work, .. } = &mut self.controller;
        if work.is_some() || !engine.store.is_complete() {
            return Ok(());
        }
        let work = engine.next_by(now, |observed, settings, now| planner.plan(observed, settings, now));
        let urgent_waits = engine.oldest_urgent().is_some();
        if let Some(oversize) = planner.oversize.take() {
            return Err(Violation::new(Property::BoundedPlans, oversize));
        }
        if let Some(wrong) = planner.wrong_blame.take() {
            return Err(Violation::new(Property::BlameIsTrue, wrong));
        }
        self.rebuild(now.instant);
        let Some(work) = work else { return Ok(()) };
        ensure(!urgent_waits || work.urgency == Urgency::Urgent, Property::UrgentFirst, || {
            format!("bulk work on {} begins, and urgent work waits", work.key)
        })?;
        self.worked = true;
        if work.key != *key() {
            self.controller.others.push_back(work);
            return Ok(());
        }
        let Work { number, jobset, actions, mut status, confirmed, .. } = work;
        if let Some(confirmed) = &confirmed {
            self.controller.note_lifts(confirmed);
        }
        actions.iter().try_for_each(|action| self.check_planned(action))?;
        let (mut objection, mut leaving) = (None, BTreeSet::new());
        if let Some(status) = &mut status {
            dialect::decode(status);
            // Nothing was counted if the plan has panicked.
            if !conditions::is_true(&status.conditions, conditions::INTERNAL_ERROR) {
                self.check_counts_of_jobs(&jobset, status)?;
            }
            let checked = self.check_announcement(&jobset, status);
            let checked = checked.and_then(|()| self.check_names(&jobset, status));
            objection = checked.and_then(|()| self.check_success_is_final(&jobset, status)).err();
            leaving = self.leaving(&jobset, status);
            if self.broken == Some(RuleMutation::LiftSentBeforeWrite) {
                let early = JobSet { status: Some(status.clone()), ..JobSet::clone(&jobset) };
                self.tell_desk(GroupSnapshot::of(&early))?;
            }
        }
        let order = Rng::with_seed(number ^ self.clock.unsigned_abs());
        let actions = actions.into();
        let told = self.told_steps();
        let new = WorkUnderWay::new(number, jobset);
        let work = WorkUnderWay { actions, status, order, objection, told, leaving, ..new };
        self.controller.work = Some(work);
        Ok(())
    }

    /// The entry that a panic has cost is listed again.
    fn rebuild(&mut self, now: Instant) {
        if self.controller.engine.take_relist().is_empty() || self.broken == Some(RuleMutation::EntryLostAfterAPanic) {
            return;
        }
        self.trace(|| "the entry is rebuilt after a panic".to_owned());
        self.controller.lifts = None;
        let mut objects: Vec<_> = KINDS.into_iter().flat_map(|kind| self.api.listed(kind)).collect();
        objects.retain(|event| matches!(event, WatchEvent::Put { owner: Some(owner), .. } if owner == key()));
        let edited = objects.into_iter().filter_map(|event| edit_event(self.broken, event)).collect();
        self.controller.engine.rebuild(key(), edited, now);
    }

    /// The next request of the work that is under way: an action, or the status, in any order.
    pub(super) fn continue_work(&mut self) -> CheckResult {
        let Some(mut work) = self.controller.work.take() else { return Ok(()) };
        self.worked = true;
        if work.writes_status_next() {
            work.status_answer = Some(self.write_status(&mut work, false)?);
        } else if let Some(action) = work.actions.pop_front() {
            self.check_request(&action, &work)?;
            self.carry_out(action, &mut work);
            // Creations that the quota refuses take no time.
            while let Some(Action::CreateJob(job)) = work.actions.front()
                && self.quota_error(&job.name).is_some()
                && let Some(action) = work.actions.pop_front()
            {
                self.carry_out(action, &mut work);
            }
        }
        if !work.actions.is_empty() || work.status.is_some() {
            self.controller.work = Some(work);
            return Ok(());
        }
        let WorkUnderWay { number, status_answer, written, failures, accepted, provided, slow, .. } = work;
        let status = Some(status_answer.unwrap_or(Ok(false)));
        let unanswered = slow.iter().map(SlowRequest::part).collect();
        self.controller.slow.extend(slow);
        let outcome = Outcome { written, failures, provided, accepted, status, unanswered, ..Outcome::default() };
        self.controller.note_failing(&outcome);
        let now = self.controller_now(Duration::ZERO);
        let is_written = matches!(outcome.status, Some(Ok(true)));
        let lost = self.controller.engine.progress.get(key()).and_then(|progress| progress.unconfirmed.clone());
        let effects = self.controller.engine.finish(key(), number, outcome, now);
        if is_written
            && self.broken == Some(RuleMutation::WriteRepeatedAfterALostAnswer)
            && let Some(progress) = self.controller.engine.progress.get_mut(key())
        {
            progress.unconfirmed = lost;
        }
        self.controller.note_lifts(&effects.confirmed);
        Ok(())
    }

    /// Writes the status of the work, if it has one.
    fn write_status(
        &mut self,
        work: &mut WorkUnderWay,
        is_late: bool,
    ) -> Result<Result<bool, RequestError>, Violation> {
        let Some(status) = work.status.take() else { return Ok(Ok(false)) };
        let before = self.api.status();
        if self.broken == Some(RuleMutation::LiftSentBeforeWrite)
            && status.synced_epoch > before.synced_epoch
            && self.network.rng.bool()
        {
            return Ok(Err(RequestError { failure: Failure::Transient, note: None }));
        }
        let repeats = std::mem::take(&mut self.controller.lost_answer)
            && self.broken == Some(RuleMutation::WriteRepeatedAfterALostAnswer);
        let base = if repeats || self.broken == Some(RuleMutation::ConflictsIgnored) {
            self.api.jobset.clone()
        } else {
            work.base.clone()
        };
        let Ok(version) = self.api.write_status(&base, status.clone()) else {
            self.trace(|| "the status conflicts".to_owned());
            return Ok(Err(RequestError { failure: Failure::Outdated, note: None }));
        };
        self.trace(|| format!("status: {}", brief(&status)));
        if status.synced_epoch > before.synced_epoch {
            self.check_leaving(&work.leaving, status.synced_epoch)?;
        }
        if let Some(objection) = work.objection.take() {
            return Err(objection);
        }
        self.check_write(&before, &status)?;
        self.check_progress(&before, &status, work.told)?;
        if !is_late && let Some((begun, _)) = &mut self.controller.lifts {
            *begun += status.synced_epoch - before.synced_epoch;
        }
        let is_lift = status.synced_epoch > before.synced_epoch;
        if !is_late && is_lift && std::mem::take(&mut self.controller.loses_answer) {
            self.trace(|| "the answer gets lost".to_owned());
            self.controller.lost_answer = true;
            return Ok(Err(RequestError { failure: Failure::Transient, note: None }));
        }
        work.written.raise(Versions::of(Kind::JobSet, version));
        if !is_late {
            self.tell_desk(GroupSnapshot::of(&self.api.jobset))?;
        }
        Ok(Ok(true))
    }

    /// The controller begins again, with nothing but what it lists.
    pub(super) fn crash(&mut self) {
        self.trace(|| "the controller crashes".to_owned());
        self.lose_desk();
        self.controller = SimulatedController::new(self.broken, &self.scenario);
        self.show_nodes();
        for kind in KINDS {
            self.api.list(kind);
        }
    }

    /// It crashes, and requests that it has sent arrive after its successor has begun.
    pub(super) fn race(&mut self) -> CheckResult {
        self.start_work()?;
        self.late = self.controller.work.take().or(self.late.take());
        self.crash();
        Ok(())
    }

    /// A request of the former controller arrives.
    pub(super) fn arrive_late(&mut self) -> CheckResult {
        let Some(mut late) = self.late.take() else { return Ok(()) };
        if late.writes_status_next() {
            drop(self.write_status(&mut late, true)?);
        } else if let Some(action) = late.actions.pop_front() {
            self.trace(|| "of the former controller:".to_owned());
            self.note_shrink(&action);
            self.carry_out(action, &mut late);
        }
        self.late = Some(late).filter(|late| !late.actions.is_empty() || late.status.is_some());
        Ok(())
    }
}

impl WorkUnderWay {
    /// A work without requests.
    pub(super) fn new(number: u64, base: Arc<JobSet>) -> Self {
        Self {
            number,
            base,
            actions: VecDeque::new(),
            status: None,
            status_answer: None,
            order: Rng::with_seed(number),
            written: Versions::NONE,
            failures: Vec::new(),
            accepted: HashSet::new(),
            provided: Vec::new(),
            slow: Vec::new(),
            objection: None,
            told: ToldSteps::default(),
            leaving: BTreeSet::new(),
        }
    }

    /// Whether the write of the status is carried out next, which comes after actions on the JobSet itself.
    fn writes_status_next(&mut self) -> bool {
        match self.actions.front() {
            None => true,
            Some(action) => self.status.is_some() && !action.is_on_jobset() && self.order.bool(),
        }
    }
}

/// The parts of a status that the properties are about.
pub(super) fn brief(status: &JobSetStatus) -> String {
    let JobSetStatus { synced_epoch, deprecated_epoch, free_epoch, restarts, group_restarts, terminal_state, .. } =
        status;
    let (counted, groups) = (status.restarts_count_towards_max, &status.replicated_jobs_status);
    let conditions = status.conditions.iter().filter(|it| it.status == "True");
    let conditions: Vec<String> = conditions.map(|it| format!("{}: {}", it.reason, it.message)).collect();
    format!(
        "S {synced_epoch} D {deprecated_epoch} free {free_epoch}, restarts {restarts}, of the group {group_restarts}, \
         counted {counted} {terminal_state} {conditions:?} {groups:?}"
    )
}
