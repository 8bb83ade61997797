//! One pass of the rules: what they read, and what they have decided so far.

use std::borrow::Borrow;
use std::ops::ControlFlow;

use jobset_api::{JobSetStatus, ReplicatedJob, RestartBudget, RestartStrategy, conditions};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::{Action, Fact, Note, Plan, Settings, gate};
use crate::build;
use crate::observe::Observed;
use crate::store::pods::JobPods;
use crate::store::{Finished, JobView};

/// A Job of the current attempt that is not being deleted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current<'a> {
    pub name: &'a str,
    pub job: &'a JobView,
    /// Index of its replicatedJob in the specification.
    pub group: usize,
    /// Its Pods, if it has any.
    pub pods: Option<&'a JobPods>,
}

/// One pass.
pub(super) struct Pass<'a> {
    pub seen: Observed<'a>,
    pub settings: &'a Settings,
    pub now: &'a Time,
    /// How the JobSet restarts: [`gate::strategy`].
    pub strategy: RestartStrategy,
    /// What its restarts spend.
    pub budget: RestartBudget,
    /// Its Jobs of the current attempt, in order of their names.
    pub current: Vec<Current<'a>>,
    /// The same of Jobs that it has too many of, since it was made smaller: they count for nothing, and go.
    pub surplus: Vec<Current<'a>>,
    pub status: JobSetStatus,
    pub actions: Vec<Action>,
    pub notes: Vec<Note>,
    pub facts: Vec<Fact>,
    pub requeue: Option<Timestamp>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(seen: &Observed<'a>, settings: &'a Settings, now: &'a Time) -> Self {
        let status = seen.status();
        let spec = &seen.jobset.spec;
        let strategy = gate::strategy(seen, settings);
        let group_of = |job: &JobView| spec.replicated_jobs.iter().position(|group| group.name == job.replicated_job);
        let current = seen.jobs().filter(|(_, job)| !job.deleting && is_current(&status, job));
        // One whose labels say no place is left alone.
        let placed = current.filter(|(_, job)| job.index.is_some_and(|index| index >= 0));
        let current = placed
            .filter_map(|(name, job)| Some(Current { name, job, group: group_of(job)?, pods: seen.pods_of(job) }));

        let is_wanted = |current: &Current<'_>| {
            let replicas = spec.replicated_jobs[current.group].replicas();
            current.job.index.is_some_and(|index| (0..replicas).contains(&index))
        };
        let (current, surplus) = current.partition(is_wanted);
        Self {
            seen: *seen,
            settings,
            now,
            strategy,
            budget: RestartBudget::of(seen.jobset),
            current,
            surplus,
            status,
            actions: Vec::new(),
            notes: Vec::new(),
            facts: Vec::new(),
            requeue: None,
        }
    }

    pub(super) fn into_plan(self) -> Plan {
        let Self { status, actions, notes, facts, requeue, .. } = self;
        Plan { status, actions, notes, facts, requeue }
    }

    /// The Job at `place`, as it is to be in the current attempt.
    pub(super) fn build(&self, place: build::JobPlace) -> Job {
        let group = &self.groups()[place.group_index];
        let attempt = build::Attempt::current(&self.status, &group.name, place.job_index);
        build::job(self.seen.jobset, place, attempt, self.strategy, self.seen.priority_classes())
    }

    pub(super) fn groups(&self) -> &'a [ReplicatedJob] {
        &self.seen.jobset.spec.replicated_jobs
    }

    /// Whether the workers restart in place.
    pub(super) fn in_place(&self) -> bool {
        self.strategy == RestartStrategy::InPlaceRestart
    }

    /// How Jobs are recreated. What restarts in place falls back to Recreate (KEP-467).
    pub(super) fn recreation(&self) -> RestartStrategy {
        if self.in_place() { RestartStrategy::Recreate } else { self.strategy }
    }

    /// The epoch that agents report next.
    pub(super) fn next_epoch(&self) -> i32 {
        self.status.synced_epoch.saturating_add(1)
    }

    /// Makes the advance to the next epoch free: the controller is about to cause it itself. Breaks if that had to be
    /// written first; the pass that reads it back goes on.
    pub(super) fn announce_free_epoch(&mut self) -> ControlFlow<()> {
        let (synced, deprecated) = (self.status.synced_epoch, self.status.deprecated_epoch);
        // Before the first lift there is nothing that an advance could be counted for; and while the group restarts, it
        // has been counted, or was free.
        if !self.in_place() || synced == 0 || deprecated == synced || self.status.free_epoch == self.next_epoch() {
            return ControlFlow::Continue(());
        }
        self.status.free_epoch = self.next_epoch();
        ControlFlow::Break(())
    }

    /// Looks again at this time, although nothing may have changed.
    pub(super) fn requeue_at(&mut self, at: Timestamp) {
        self.requeue = Some(self.requeue.map_or(at, |before| before.min(at)));
    }

    pub(super) fn delete_job(&mut self, name: &str, uid: &str) {
        self.actions.push(Action::DeleteJob { name: name.to_owned(), uid: uid.to_owned() });
    }

    pub(super) fn set_condition(&mut self, type_: &str, status: bool, reason: &str, message: &str) -> bool {
        conditions::set(&mut self.status.conditions, type_, status, reason, message, self.now)
    }

    /// Sets a condition to false if it is true: one that never was true is not told about. Returns whether it was true.
    pub(super) fn clear_condition(&mut self, type_: &str, reason: &str, message: &str) -> bool {
        conditions::is_true(&self.status.conditions, type_) && self.set_condition(type_, false, reason, message)
    }

    pub(super) fn warn(&mut self, reason: &'static str, message: String) {
        self.notes.push(Note::warning(reason, message));
    }

    pub(super) fn tell(&mut self, reason: &'static str, message: String) {
        self.notes.push(Note::normal(reason, message));
    }

    /// Fails the JobSet: final.
    pub(super) fn fail(&mut self, reason: &'static str, message: String) -> ControlFlow<()> {
        conditions::FAILED.clone_into(&mut self.status.terminal_state);
        self.set_condition(conditions::FAILED, true, reason, &message);
        self.clear_condition(conditions::RESTARTING, conditions::JOB_SET_FAILED, "jobset failed");
        self.warn(reason, message);
        self.facts.push(Fact::Failed { budget_exhausted: conditions::is_by_max_restarts(reason) });
        ControlFlow::Break(())
    }
}

/// How many a message names; there may be thousands.
const NAMED: usize = 10;

/// Names for a message: the first ten, and how many more there are.
pub(super) fn first_few<S: Borrow<str>>(names: &[S]) -> String {
    let few = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => few,
        more => format!("{few} and {more} more"),
    }
}

/// Whether the Job is of the current attempt: neither the whole set, nor its replicatedJob, nor itself was restarted
/// since it was created. One of a later attempt than the status knows is current, too: the status was lost, or written by
/// a controller that does not know all of it. The next restart goes above it.
pub(super) fn is_current(status: &JobSetStatus, job: &JobView) -> bool {
    let of_set = job.attempt.is_some_and(|attempt| attempt >= status.restarts);
    of_set && job.job_attempt >= status.job_attempt(&job.replicated_job, job.index.unwrap_or(-1))
}

/// Whether the Job has completed.
pub(super) fn has_completed(job: &JobView) -> bool {
    job.finished == Some(Finished::Completed)
}

/// Whether the Job has failed.
pub(super) fn has_failed(job: &JobView) -> bool {
    matches!(job.finished, Some(Finished::Failed { .. }))
}
