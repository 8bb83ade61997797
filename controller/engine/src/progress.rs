//! What the engine remembers of its own work on one JobSet.
//!
//! # Lost answers
//!
//! A status write whose answer is lost is confirmed by the next observed version of the JobSet: then its Events are created and
//! its facts are counted, once. An Event's name is made from the JobSet's UID, its numbers and the note, so that a second
//! creation is the same Event. The next leader creates the Event of a restart that is under way again.
//!
//! What can be lost: if a leader ends between its status write and the answer, no metric counts that restart, since each process
//! counts its own (the status has it); so are Events other than that of the restart. The same holds when the JobSet changes
//! again before the written version is observed, or when a panic costs the entry.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use jobset_api::{JobSet, JobSetStatus, conditions};
use jobset_rules::{Action, Fact, Note};
use jobset_store::{Versions, without_counts};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use k8s_openapi::jiff::Timestamp;

use crate::Urgency;
use crate::event_log::EventLog;
use crate::internal_error::InternalError;
use crate::queue::Due;
use crate::refusals::{Refusals, Request};
use crate::slow::Part;
use crate::work::{Confirmed, Failure, Stored};

/// What the engine remembers of its own work on one JobSet. Dropped with the JobSet.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// What the last work wrote, and until when the next plan waits to observe it. A plan that has not observed the write
    /// before it would repeat that write.
    pub unobserved_writes: Option<(Versions, Instant)>,
    pub status_written: Option<Instant>,
    /// When the last plan was made.
    pub planned: Option<Instant>,
    pub refusals: Refusals,
    pub events: EventLog,
    /// Whether its last turn ended because more messages are to be compared with patterns.
    pub is_comparing: bool,
    pub under_way: Option<UnderWay>,
    /// Slow requests that the JobSet does not wait for, each with the number of its work.
    pub unanswered: HashMap<Request, u64>,
    /// Whether the last status write was slow and failed.
    pub status_hangs: bool,
    /// A status write whose answer was lost.
    pub unconfirmed: Option<Decision>,
    /// What a plan leaves after its first slice.
    pub rest: Option<Rest>,
    /// The panic that the JobSet has caused, until a reconciliation succeeds.
    pub internal_error: Option<InternalError>,
}

#[derive(Debug)]
pub(super) struct UnderWay {
    pub number: u64,
    pub urgency: Urgency,
    pub began: Instant,
    /// Whether it is a later slice of a plan.
    pub is_slice: bool,
    /// The plan's status, until its write is answered; `None` for a slice.
    pub decision: Option<Decision>,
    /// Whether all of the plan that does not wait for the status is in this work.
    pub settled: bool,
    pub due: Option<Due>,
    /// Why the plan has actions that are not sent, if it has.
    pub unsent: Option<Unsent>,
    /// The parts without an answer that the JobSet waits for, slow or not. What is planned in ignorance of them could undo them.
    pub awaited: HashSet<Part>,
    /// The worst failure so far.
    pub failure: Option<Failure>,
    pub status_failure: Option<Failure>,
}

/// Why actions are not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsent {
    NoPlace,
    /// A request before them is slow.
    Slow,
}

impl UnderWay {
    /// A work that sends this.
    pub(super) fn new(
        number: u64,
        decision: Option<Decision>,
        actions: &[Action],
        urgency: Urgency,
        now: Instant,
    ) -> Self {
        let changes = actions.iter().filter(|action| changes_child(action));
        let changes = changes.map(|action| Part::Action(Request::of(action)));
        Self {
            number,
            urgency,
            began: now,
            is_slice: decision.is_none(),
            awaited: decision.iter().map(|_| Part::Status).chain(changes).collect(),
            decision,
            settled: false,
            due: None,
            unsent: None,
            failure: None,
            status_failure: None,
        }
    }
}

/// Whether the action changes or deletes a Job or a Pod that exists.
fn changes_child(action: &Action) -> bool {
    match action {
        Action::DeleteJob { .. }
        | Action::SuspendJob { .. }
        | Action::ResumeJob { .. }
        | Action::EndJob { .. }
        | Action::ResizeJob { .. }
        | Action::DeletePod { .. } => true,
        Action::CreateJob(_)
        | Action::CreateService { .. }
        | Action::CreateRoleBinding { .. }
        | Action::CreateClaim { .. }
        | Action::ReleasePod { .. }
        | Action::FindRefusal { .. }
        | Action::FindWarning { .. }
        | Action::DeleteJobSet
        | Action::DisableInPlaceRestart(_)
        | Action::AnnotateRestartBudget(_) => false,
    }
}

/// A status, and what follows once it is written.
#[derive(Clone, Debug, Default)]
pub(super) struct Decision {
    /// resourceVersion of the JobSet that it is based on.
    pub base: Option<String>,
    pub status: JobSetStatus,
    pub notes: Vec<Note>,
    pub facts: Vec<Fact>,
}

/// Actions of a plan that are sent in later slices.
#[derive(Debug)]
pub(super) struct Rest {
    /// The JobSet of the plan, from which its objects are built.
    pub jobset: Arc<JobSet>,
    pub actions: std::vec::IntoIter<Action>,
    pub due: Option<Due>,
    pub settled: bool,
}

/// What a status decides. The API server stores times in whole seconds, and a repeated write has later ones.
fn without_times(status: &JobSetStatus) -> JobSetStatus {
    let mut status = without_counts(status);
    for condition in &mut status.conditions {
        condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
        if condition.type_ == conditions::RESTART_BACKOFF {
            condition.message.clear();
        }
    }
    status.start_time = status.start_time.map(|_| Time(Timestamp::UNIX_EPOCH));
    let without = |time: &mut Option<MicroTime>| *time = time.take().map(|_| MicroTime(Timestamp::UNIX_EPOCH));
    without(&mut status.barrier_until);
    without(&mut status.epoch_transition_time);
    for restart in &mut status.recent_restarts {
        restart.start_time = MicroTime(Timestamp::UNIX_EPOCH);
        without(&mut restart.completion_time);
    }
    status
}

impl Progress {
    /// Whether the JobSet goes on without an answer to this action, or to another one of its kind, which would hang as well.
    pub(super) fn is_unanswered(&self, action: &Action) -> bool {
        self.unanswered.keys().any(|request| request.is_kind_of(action))
    }

    /// The consequences of a status write whose answer was lost, if this observed status shows that it was carried out.
    pub(super) fn confirm(&mut self, jobset: &JobSet, observed: &JobSetStatus, now: Instant) -> Option<Confirmed> {
        // Until another version is observed, nobody knows.
        let decision = self.unconfirmed.take_if(|decision| jobset.metadata.resource_version != decision.base)?;
        if without_times(observed) != without_times(&decision.status) {
            return None;
        }
        let stored = Stored::of(&decision.status);
        let refused = self.refusals.notes();
        let events = self.events.report(jobset, stored, decision.notes, refused, now);
        Some(Confirmed { facts: decision.facts, events })
    }

    /// The Event of a restart that has begun and is under way when the engine first plans for the JobSet: the leader before
    /// may have ended before it could create it. If it did, this is the same Event, by its name. Metrics do not count it: they
    /// count what this process has done.
    pub(super) fn retell(
        &mut self,
        jobset: &JobSet,
        stored: &JobSetStatus,
        is_first: bool,
        now: Instant,
    ) -> Option<Confirmed> {
        let begun = |it: &&Condition| it.type_ == conditions::RESTARTING && it.status == "True";
        let condition = stored.conditions.iter().find(begun).filter(|_| is_first && stored.epochs().is_closed())?;
        let note = Note::warning("Restarting", condition.message.clone());
        let events = self.events.report(jobset, Stored::of(stored), vec![note], Vec::new(), now);
        Some(Confirmed { facts: Vec::new(), events })
    }
}
