//! The state of one reconciliation: the input of the rules, and what they have decided so far.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use jobset_api::{JobSetStatus, ReplicatedJob, ReplicatedJobStatus, RestartBudget, RestartStrategy, conditions, names};
use jobset_store::members::Members;
use jobset_store::pods::{JobPods, PodView};
use jobset_store::{Finished, JobView, Observed};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::progress::LostWork;
use crate::settle::Settling;
use crate::start_wait::StartWait;
use crate::types::{Action, Fact, Note, Plan, PodDeletion, Settings};
use crate::{attempts, backoff, build, merge_notes, nodes, success};

/// A Job of the current attempt that is not being deleted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current<'a> {
    pub name: &'a str,
    pub job: &'a JobView,
    /// Index of its replicatedJob in the specification.
    pub group: usize,
    /// Its Pods; `None` if it has none.
    pub pods: Option<&'a JobPods>,
    /// Whether it is about to complete ([`success::is_succeeding`]).
    pub succeeding: bool,
}

impl Current<'_> {
    /// Whether it has finished or is about to complete. Nobody waits for its Pods, and how they end is nobody's failure.
    pub(super) fn is_over(&self) -> bool {
        self.job.finished.is_some() || self.succeeding
    }

    /// Whether it has completed or is about to.
    pub(super) fn has_succeeded(&self) -> bool {
        self.succeeding || has_completed(self.job)
    }
}

/// One reconciliation of a JobSet.
pub(super) struct Reconciliation<'a> {
    pub observed: Observed<'a>,
    pub settings: &'a Settings,
    pub now: &'a Time,
    /// How the JobSet restarts: [`Observed::strategy`].
    pub strategy: RestartStrategy,
    pub budget: RestartBudget,
    /// Its Jobs of the current attempt, sorted by name.
    pub current: Vec<Current<'a>>,
    /// Jobs of the current attempt with an index beyond `replicas`, after the JobSet was scaled down. No rule counts them;
    /// the elastic rule deletes them.
    pub surplus: Vec<Current<'a>>,
    /// The names of the Jobs of previous attempts, and the Jobs.
    pub previous: Vec<(&'a str, &'a JobView)>,
    pub status: JobSetStatus,
    /// The replicatedJobs that do not start yet, and what they wait for.
    pub start_waits: Vec<StartWait>,
    /// What the next epoch waits for, if that is names alone.
    pub settling: Option<Settling>,
    /// Whether Pods leave cordoned nodes, which the next epoch must not begin with.
    pub leaves_cordoned: bool,
    /// Since when no worker has made progress, as is known from now on.
    pub stalled_since: Option<Timestamp>,
    /// What the epoch has lost that ends when the next one begins.
    pub lost: Option<LostWork>,
    /// The place of each replicatedJob in the specification, by its name.
    places: HashMap<&'a str, usize>,
    /// The places of the Jobs in `current`, in the order of their replicatedJobs.
    by_group: Vec<usize>,
    /// For each replicatedJob, where its Jobs end in `by_group`.
    ends: Vec<usize>,
    pub actions: Vec<Action>,
    pub notes: Vec<Note>,
    pub facts: Vec<Fact>,
    pub requeue: Option<Timestamp>,
    /// Whether agents are missing on the agent stream, once somebody has looked.
    pub misses_agents: Option<bool>,
}

impl<'a> Reconciliation<'a> {
    pub(super) fn new(observed: &Observed<'a>, settings: &'a Settings, now: &'a Time) -> Self {
        let status = observed.status();
        let spec = &observed.jobset.spec;
        let strategy = observed.strategy(settings.gates);
        let places: HashMap<&str, usize> =
            spec.replicated_jobs.iter().enumerate().map(|(place, group)| (group.name.as_str(), place)).collect();
        let group_of = |job: &JobView| places.get(job.replicated_job.as_str()).copied();
        let (mut current, mut surplus, mut previous) = (Vec::new(), Vec::new(), Vec::new());
        for (name, job) in observed.jobs() {
            let group = group_of(job);
            if !is_current(&status, group, job) {
                previous.push((name, job));
                continue;
            }
            // The rules ignore a Job whose labels have no valid index.
            let (Some(group), Some(index @ 0..), false) = (group, job.index, job.deleting) else { continue };
            let is_surplus = index >= spec.replicated_jobs[group].replicas();
            // A Job whose label does not match its name is left alone, so nobody deletes it as surplus.
            if is_surplus && *name != names::job(observed.name(), &spec.replicated_jobs[group].name, index) {
                continue;
            }
            let jobs = if is_surplus { &mut surplus } else { &mut current };
            let pods = observed.pods_of(job);
            let succeeding = success::is_succeeding(job, pods, &spec.replicated_jobs[group].template.spec);
            jobs.push(Current { name, job, group, pods, succeeding });
        }
        let mut by_group: Vec<usize> = (0..current.len()).collect();
        by_group.sort_by_key(|place| current[*place].group);
        let ends = (0..spec.replicated_jobs.len())
            .map(|group| by_group.partition_point(|place| current[*place].group <= group))
            .collect();
        Self {
            observed: *observed,
            settings,
            now,
            strategy,
            budget: RestartBudget::of(observed.jobset),
            current,
            surplus,
            previous,
            status,
            start_waits: Vec::new(),
            settling: None,
            leaves_cordoned: false,
            stalled_since: None,
            lost: None,
            places,
            by_group,
            ends,
            actions: Vec::new(),
            notes: Vec::new(),
            facts: Vec::new(),
            requeue: None,
            misses_agents: None,
        }
    }

    pub(super) fn changes_status(&self) -> bool {
        self.observed.jobset.status.as_ref().map_or(self.status != JobSetStatus::default(), |it| *it != self.status)
    }

    pub(super) fn into_plan(self) -> Plan {
        let Self { mut status, actions, notes, facts, requeue, misses_agents, .. } = self;
        if status.epochs() != self.observed.stored_epochs() {
            status.epoch_transition_time = Some(backoff::micro_time(self.now.0));
        }
        let notes = merge_notes(notes.into_iter().map(|note| (note, 1)));
        let notes = notes.into_iter().map(|(note, _)| note).collect();
        Plan { status, actions, notes, facts, requeue, misses_agents }
    }

    /// The Job at `place` in the current attempt.
    pub(super) fn desired_job(&self, place: build::JobPlace) -> build::DesiredJob {
        let group = &self.groups()[place.group_index];
        let status = self.status.replicated_job_at(place.group_index, &group.name);
        let attempt = build::Attempt {
            restarts: self.status.restarts,
            job: status.map_or(0, |status| status.job_attempt(place.job_index)),
            execution: attempts::of_new_jobs(self),
        };
        let classes = &self.observed.cluster.classes;
        let desired = build::DesiredJob::of(self.observed.jobset, place, attempt, self.strategy, classes);
        build::DesiredJob { avoids_nodes: nodes::may_move(self), ..desired }
    }

    pub(super) fn groups(&self) -> &'a [ReplicatedJob] {
        &self.observed.jobset.spec.replicated_jobs
    }

    /// The Jobs of the replicatedJob at this place, of those in `current`.
    pub(super) fn jobs_of(&self, group: usize) -> impl ExactSizeIterator<Item = &Current<'a>> {
        let begin = if group == 0 { 0 } else { self.ends[group - 1] };
        self.by_group[begin..self.ends[group]].iter().map(|place| &self.current[*place])
    }

    pub(super) fn running_pods(&self) -> impl Iterator<Item = &'a JobPods> + use<'a> {
        let running = self.current.iter().filter(|current| !current.is_over());
        running.filter_map(|current| current.pods).collect::<Vec<_>>().into_iter()
    }

    /// The index of the replicatedJob of each Job that is not over, by the UID of the Job.
    pub(super) fn groups_of_running_jobs(&self) -> HashMap<&'a str, usize> {
        let running = self.current.iter().filter(|current| !current.is_over());
        running.map(|current| (current.job.uid.as_str(), current.group)).collect()
    }

    pub(super) fn is_current(&self, job: &JobView) -> bool {
        is_current(&self.status, self.group_of(job), job)
    }

    /// Index of the Job's replicatedJob in the specification.
    pub(super) fn group_of(&self, job: &JobView) -> Option<usize> {
        self.places.get(job.replicated_job.as_str()).copied()
    }

    /// The replicatedJob of this name, and its place in the specification.
    pub(super) fn group_named(&self, name: &str) -> Option<(usize, &'a ReplicatedJob)> {
        let place = *self.places.get(name)?;
        Some((place, &self.groups()[place]))
    }

    pub(super) fn status_of(&self, name: &str) -> Option<&ReplicatedJobStatus> {
        let (place, group) = self.group_named(name)?;
        self.status.replicated_job_at(place, &group.name)
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.observed.jobset.spec.is_suspended()
    }

    /// Whether workers restart in place.
    pub(super) fn in_place(&self) -> bool {
        self.strategy == RestartStrategy::InPlaceRestart
    }

    /// The strategy by which Jobs are recreated. InPlaceRestart falls back to Recreate (KEP-467).
    pub(super) fn recreation(&self) -> RestartStrategy {
        if self.in_place() { RestartStrategy::Recreate } else { self.strategy }
    }

    /// The epoch that agents report next.
    pub(super) fn next_epoch(&self) -> i32 {
        self.status.synced_epoch.saturating_add(1)
    }

    /// The members of the replicatedJob at this place.
    pub(super) fn members(&self, group: usize) -> Members {
        Members::of(self.status.replicated_jobs_status.get(group))
    }

    /// Requeues the JobSet at this time, or earlier if an earlier time is set.
    pub(super) fn requeue_at(&mut self, at: Timestamp) {
        self.requeue = Some(self.requeue.map_or(at, |before| before.min(at)));
    }

    /// Whether this time has come. If not, requeues the JobSet at it.
    pub(super) fn is_due(&mut self, at: Timestamp) -> bool {
        let is_due = at <= self.now.0;
        if !is_due {
            self.requeue_at(at);
        }
        is_due
    }

    pub(super) fn delete_job(&mut self, name: &str, uid: &str) {
        self.actions.push(Action::DeleteJob { name: name.to_owned(), uid: uid.to_owned() });
    }

    /// Deletes the Pod of this name and UID, and says why in an Event.
    pub(super) fn delete_pod(&mut self, name: &str, uid: &str, reason: PodDeletion, message: String) {
        self.warn(reason.event(), message);
        self.actions.push(Action::DeletePod { name: name.to_owned(), uid: uid.to_owned(), reason });
    }

    pub(super) fn true_condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find_true(&self.status.conditions, type_)
    }

    /// When one of these conditions changed last, or the JobSet was created.
    pub(super) fn last_change_of(&self, types: &[&str]) -> Option<Timestamp> {
        let conditions = self.status.conditions.iter().filter(|it| types.contains(&&*it.type_));
        let changed = conditions.map(|it| it.last_transition_time.0);
        let created = self.observed.jobset.metadata.creation_timestamp.as_ref().map(|time| time.0);
        changed.chain(created).max()
    }

    /// Makes a condition true. Returns whether that changes it.
    pub(super) fn set_condition(&mut self, type_: &str, reason: &str, message: &str) -> bool {
        conditions::set(&mut self.status.conditions, type_, true, reason, message, self.now)
    }

    /// Sets a condition to false if it is true, and does not add a condition that is absent. Returns whether it was true.
    pub(super) fn clear_condition(&mut self, type_: &str, reason: &str, message: &str) -> bool {
        self.true_condition(type_).is_some()
            && conditions::set(&mut self.status.conditions, type_, false, reason, message, self.now)
    }

    /// The JobSet waits for nothing any longer.
    pub(super) fn clear_waits(&mut self, why: &str) {
        backoff::end_wait(self, why);
        self.clear_condition(conditions::BARRIER_WAITING, conditions::BARRIER_REACHED, why);
        self.clear_condition(conditions::START_WAITING, conditions::DEPENDENCIES_MET, why);
        self.clear_condition(conditions::WORKERS_NOT_RUNNING, conditions::WORKERS_RUN, why);
        self.clear_condition(conditions::PROGRESS_STALLED, conditions::PROGRESS_RESUMED, why);
        self.clear_condition(conditions::RECREATION_BLOCKED, conditions::EARLIER_ATTEMPT_GONE, why);
    }

    pub(super) fn warn(&mut self, reason: &'static str, message: String) {
        self.notes.push(Note::warning(reason, message));
    }

    pub(super) fn note(&mut self, reason: &'static str, message: String) {
        self.notes.push(Note::normal(reason, message));
    }

    /// Fails the JobSet. This is final.
    pub(super) fn fail(&mut self, reason: &'static str, message: String) -> ControlFlow<()> {
        conditions::FAILED.clone_into(&mut self.status.terminal_state);
        self.set_condition(conditions::FAILED, reason, &message);
        self.clear_condition(conditions::RESTARTING, conditions::JOB_SET_FAILED, "jobset failed");
        self.clear_waits("jobset failed");
        self.warn(reason, message);
        self.facts.push(Fact::Failed { budget_exhausted: conditions::is_by_max_restarts(reason) });
        ControlFlow::Break(())
    }
}

/// How many names a message lists. A JobSet may have thousands of Jobs.
const NAMED: usize = 10;

/// Lists the first ten names for a message, and the number of the others.
pub(super) fn first_few<S: Borrow<str>>(names: &[S]) -> String {
    let few = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => few,
        more => format!("{few} and {more} more"),
    }
}

pub(super) fn by_name<'a>(pods: impl Iterator<Item = &'a PodView>) -> Vec<&'a PodView> {
    let mut pods: Vec<_> = pods.collect();
    pods.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    pods
}

/// Lists the names of the first ten Pods, and the number of the others.
pub(super) fn name_few(pods: &[&PodView]) -> String {
    first_few(&pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>())
}

pub(super) fn node_name(node: Option<&Arc<str>>) -> &str {
    node.map_or("unknown", |name| name)
}

/// Whether the Job belongs to the current attempt: no restart of the JobSet, of its replicatedJob or of the Job itself has
/// begun since its creation. A Job of a later attempt than the status knows is current, too: the status was lost, or
/// another controller dropped fields that it does not know. The next restart uses a higher attempt.
fn is_current(status: &JobSetStatus, group: Option<usize>, job: &JobView) -> bool {
    let of_set = job.attempt.is_some_and(|attempt| attempt >= status.restarts);
    let of_group = status.replicated_job_at(group.unwrap_or(usize::MAX), &job.replicated_job);
    of_set && job.job_attempt >= of_group.map_or(0, |status| status.job_attempt(job.index.unwrap_or(-1)))
}

pub(super) fn has_completed(job: &JobView) -> bool {
    job.finished == Some(Finished::Completed)
}

pub(super) fn has_failed(job: &JobView) -> bool {
    matches!(job.finished, Some(Finished::Failed { .. }))
}
