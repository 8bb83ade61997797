//! A slot: one completion index of one Job, with the Pods that fill it, one after another.

use std::sync::Arc;

use super::ObservedEpochs;
use super::end::{ended_before, ended_in, vanished_in};
use super::failure::{PodFailure, ReportedExit};
use super::member::{Member, MemberChange};
use super::progress::PodProgress;
use super::view::{Epoch, PodPhase, PodView};

/// The Pods of one completion index, and what the slot remembers when they are gone.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(super) struct PodSlot {
    members: Vec<Member>,
    /// The newest failure of a worker.
    pub broken: Option<Box<FailedWorker>>,
    /// The Pod that succeeded only because it was deleted: its index counts as completed, and its work is lost.
    pub lost: Option<Box<FailedWorker>>,
    /// How many of its Pods in a row were deleted before their worker was observed to run.
    pub deleted_before_start: u32,
    /// What has kept its worker from starting since the barrier was last lifted.
    pub blocked: Option<Box<Blocked>>,
}

/// What has kept the worker of a slot from starting.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub struct Blocked {
    /// Failures of the last of these Pods before its worker ran, each of which restarted its containers. 0 once it has failed for
    /// good.
    pub failures: u32,
    /// Pods that have failed for good: as a whole, or because they failed too often and were deleted.
    pub pods: u32,
    /// Pods that their node has refused.
    pub refusals: u32,
    /// The last Pod of these.
    pub pod: String,
    pub uid: String,
    pub node: Option<Arc<str>>,
    /// What is known of the last failure or refusal.
    pub failure: PodFailure,
}

/// How often a Pod may fail before its worker runs. Another one may find what it does not.
const FAILURES_OF_POD: u32 = 3;

impl Blocked {
    /// Whether the Pod has failed so often that it is replaced.
    pub fn is_given_up(&self) -> bool {
        self.failures >= FAILURES_OF_POD
    }
}

#[derive(Clone, Debug, PartialEq, Hash)]
pub struct FailedWorker {
    pub pod: String,
    pub node: Option<Arc<str>>,
    /// Completion index of its Pod.
    pub index: Option<i32>,
    pub epoch: i32,
    /// Whether its Pod was being deleted, or was gone, when its end was first observed.
    pub deleted: bool,
    /// Whether its Pod has failed as a whole, or is going away.
    pub pod_ended: bool,
    /// Whether its agent has reported the failure: a supervisor, whose container goes on.
    pub reported: bool,
    pub failure: PodFailure,
}

/// What a slot adds to the counts of its Job. A slot that is done by the Job's own account, or outside of its size, adds
/// nothing.
// Each is counted by itself.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// The epoch of the group began without it.
    pub newcomer: bool,
    /// Epoch that the Pod reports.
    pub report: Option<i32>,
    /// Whether the worker is in that epoch, too.
    pub trust: Trust,
    /// There is no report that is a number.
    pub unreported: bool,
    pub malformed: bool,
    pub runs: bool,
    /// It is unreported, and the worker runs all the same: the report was lost.
    pub mute: bool,
    pub succeeded: bool,
    /// Its success is a loss.
    pub lost: bool,
    /// Its workers have succeeded, and that is no loss. It counts wherever the slot is: the Job may have more indexes than it runs at
    /// once.
    pub done: bool,
    /// Epoch in which it failed.
    pub broken: Option<i32>,
    /// Epoch in which the Pod that stands for it has ended.
    pub ended: Option<i32>,
    /// Failures of the last Pod before its worker ran, Pods that failed like this, and refusals.
    pub blocked: (u32, u32, u32),
    /// The epoch that its Pod reports, if its worker was not observed to start in it.
    pub waits: Option<i32>,
    /// When its Pod was created, in seconds, if a worker of the Pod has never run.
    pub idle: Option<i64>,
    /// All workers of its Pod have run in it.
    pub started: bool,
    /// Its Pod has lost its sandbox, or has a container that ends by itself and keeps others waiting.
    pub stuck: bool,
    /// Its Pod finds no node, because it keeps away from some.
    pub unplaced: bool,
    /// Its failed Pods that may delay a successor, and how many of them are being deleted.
    pub held: (usize, usize),
    /// The second in which the Pod got its address, if it has reported; the last of all where its status does not say so yet.
    pub address: Option<i64>,
    /// Domain that the Pod asks for, if it follows a leader.
    pub domain: Option<Box<str>>,
    /// Whether its worker, or one before it in the same Pod, has told of progress.
    pub tells_progress: bool,
    /// Epoch in which its worker makes no progress.
    pub stalled: Option<i32>,
    /// Highest step, last checkpoint and longest pause that its worker has told of, in any epoch.
    pub far: FarShare,
}

/// How far the worker of a slot has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FarShare {
    pub step: Option<i64>,
    pub checkpoint: Option<i64>,
    pub pause: Option<u32>,
}

/// Whether the worker is in the epoch that its agent reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Trust {
    #[default]
    Sure,
    /// The containers that ran in an earlier epoch seem to run on, or the Pod is being deleted and will never get there.
    /// The report is heard, the slot is not filled.
    Suspect,
    /// They do, and the agent restarted without them.
    Alone,
}

impl PodSlot {
    /// The Pod as it is now. A failure in an epoch that is over is none: its Pods are told to restart.
    pub(super) fn apply(&mut self, view: PodView, epochs: ObservedEpochs) {
        let known = self.members.iter().position(|member| member.view.uid == view.uid);
        let was_here = known.is_some_and(|place| self.members[place].view.deleted_at.is_none());
        let (place, change) = match known {
            Some(place) if self.members[place].view.version > view.version => return,
            Some(place) => (place, self.members[place].apply(view, epochs)),
            None => {
                self.members.push(Member::new(view, epochs));
                (self.members.len() - 1, MemberChange::default())
            }
        };
        if change.failed_before_worker || change.refused {
            self.note_blocked(place, &change);
        }
        let member = &self.members[place];
        let (uid, is_going) = (member.view.uid.clone(), member.view.deleted_at.is_some());
        if member.view.workers != 0 {
            self.deleted_before_start = 0;
        } else if was_here && is_going && member.waits_to_start().is_some() {
            self.deleted_before_start = self.deleted_before_start.saturating_add(1);
        }
        if is_going {
            self.note_given_up(&uid);
        }
        // A Pod that has passed the barrier is not held up by failures that are observed late. One that has failed since is over, and its
        // successors may be held up.
        let has_passed = |it: &Member| it.view.phase != PodPhase::Failed && it.is_well_in(epochs.synced);
        if self.members.iter().any(has_passed) {
            self.blocked = None;
        }
        if let Some(epoch) = change.broke_in.filter(|epoch| *epoch > epochs.deprecated) {
            self.note_failure(FailedWorker::of(&self.members[place].view, epoch));
        }
        self.note_end(epochs);
        let reported = FailedWorker::reported_by(&self.members[place].view);
        if let Some(reported) = reported.filter(|reported| reported.epoch > epochs.deprecated || self.knows(reported)) {
            self.note_failure(reported);
        }
        self.note_loss(&uid);
        self.forget_predecessor();
    }

    /// The Pod is gone. If it stood for the slot, its worker has ended now, if that was not observed before.
    pub(super) fn remove(&mut self, name: &str, epochs: ObservedEpochs) {
        let stands = self.standing().is_some_and(|pod| pod.name == name);
        let Some(place) = self.members.iter().position(|member| member.view.name == name) else { return };
        let gone = self.members.remove(place).view;
        self.note_given_up(&gone.uid);
        if let Some(epoch) = vanished_in(&gone).filter(|epoch| stands && epochs.runs(*epoch)) {
            self.note_failure(FailedWorker { deleted: true, pod_ended: true, ..FailedWorker::of(&gone, epoch) });
        }
    }

    /// An epoch has begun, or is over: what failed before is over, too.
    pub(super) fn turn(&mut self, epochs: ObservedEpochs) {
        self.blocked = None;
        self.broken.take_if(|broken| broken.epoch < epochs.synced);
        self.note_end(epochs);
    }

    /// Notes the end of the Pod that stands for the slot, if it was in the epoch that runs.
    pub(super) fn note_end(&mut self, epochs: ObservedEpochs) {
        let ended = self.standing().and_then(|pod| {
            let epoch = ended_in(pod).filter(|epoch| epochs.runs(*epoch) && !ended_before(pod, epochs.lifted_at))?;
            Some(FailedWorker::of(pod, epoch))
        });
        if let Some(failed) = ended {
            self.note_failure(failed);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether nothing is remembered that outlives the Pods.
    pub(super) fn is_forgettable(&self) -> bool {
        self.is_empty()
            && self.broken.is_none()
            && self.lost.is_none()
            && self.blocked.is_none()
            && self.deleted_before_start == 0
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = &PodView> {
        self.members.iter().map(|member| &member.view)
    }

    /// The Pod that stands for the slot: the newest that can fill it, else the newest of all.
    pub(super) fn standing(&self) -> Option<&PodView> {
        self.standing_member().map(|member| &member.view)
    }

    fn standing_member(&self) -> Option<&Member> {
        let rank = |pod: &PodView| (pod.fills_its_slot() || pod.phase == PodPhase::Succeeded, pod.created);
        self.members.iter().max_by_key(|member| rank(&member.view))
    }

    /// A Pod whose successor reports the same epoch has ended before that epoch began: who follows a member reports the next one.
    fn forget_predecessor(&mut self) {
        let standing = self.standing().filter(|pod| pod.fills_its_slot());
        let Some((name, epoch)) = standing.map(|pod| (pod.name.clone(), pod.epoch.number())) else { return };
        self.broken.take_if(|broken| broken.pod != name && Some(broken.epoch) == epoch);
    }

    /// A Pod that follows another shows that the Job did not take that one for a success.
    fn note_loss(&mut self, uid: &str) {
        let Some(member) = self.standing_member().filter(|member| member.view.uid == uid) else { return };
        let broken = |pod: &PodView| Box::new(FailedWorker::of(pod, pod.epoch.number().unwrap_or(0)));
        self.lost = member.succeeded_by_deletion().then(|| broken(&member.view));
    }

    /// Notes a Pod that has failed before its worker ran, or that its node has refused.
    fn note_blocked(&mut self, place: usize, change: &MemberChange) {
        let PodView { name, uid, node, phase, failure, .. } = &self.members[place].view;
        let blocked = self.blocked.get_or_insert_default();
        let before = if blocked.uid == *uid { blocked.failures } else { 0 };
        let has_failed = change.failed_before_worker && *phase == PodPhase::Failed;
        blocked.failures = if has_failed { 0 } else { before + u32::from(change.failed_before_worker) };
        blocked.pods += u32::from(has_failed);
        blocked.refusals += u32::from(change.refused);
        (blocked.pod, blocked.uid, blocked.node) = (name.clone(), uid.clone(), node.clone());
        blocked.failure = failure.as_deref().cloned().unwrap_or_default();
        blocked.failure.first.clone_from(&change.first);
    }

    /// A Pod that failed too often before its worker ran is deleted, or gone.
    fn note_given_up(&mut self, uid: &str) {
        if let Some(blocked) = self.blocked.as_mut().filter(|blocked| blocked.uid == uid && blocked.is_given_up()) {
            blocked.pods += 1;
            blocked.failures = 0;
        }
    }

    /// Whether this failure is the one that the slot remembers.
    fn knows(&self, failed: &FailedWorker) -> bool {
        self.broken.as_ref().is_some_and(|broken| broken.epoch == failed.epoch && broken.pod == failed.pod)
    }

    fn note_failure(&mut self, broken: FailedWorker) {
        match &mut self.broken {
            // The status shows more of one failure from event to event, and in the end nothing of it.
            Some(known) if known.epoch == broken.epoch && known.pod == broken.pod => {
                known.pod_ended |= broken.pod_ended;
                known.reported |= broken.reported;
                known.failure.learn(broken.failure);
            }
            known => *known = Some(Box::new(broken)),
        }
    }

    /// The Pods of the slot by other names and at another index.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn renamed(mut self, index: Option<i32>, rename: impl Fn(&str) -> String) -> Self {
        for Member { view, .. } in &mut self.members {
            (view.name, view.index) = (rename(&view.name), index);
        }
        if let Some(blocked) = &mut self.blocked {
            blocked.pod = rename(&blocked.pod);
        }
        for broken in self.broken.iter_mut().chain(&mut self.lost) {
            (broken.pod, broken.index) = (rename(&broken.pod), index);
        }
        self
    }

    /// What the slot adds to the counts.
    pub(super) fn share(&self, synced: i32) -> Share {
        let held = || self.pods().filter(|pod| pod.delays_its_successor());
        let mut share = Share {
            lost: self.lost.is_some(),
            broken: self.broken.as_ref().map(|broken| broken.epoch),
            blocked: self
                .blocked
                .as_ref()
                .map_or((0, 0, 0), |blocked| (blocked.failures, blocked.pods, blocked.refusals)),
            held: (held().count(), held().filter(|pod| pod.deleted_at.is_some()).count()),
            ..Share::default()
        };
        let Some(member) = self.standing_member() else { return share };
        let pod = &member.view;
        if let Some(PodProgress { step, checkpoint, pause, .. }) = pod.progress.as_deref() {
            share.far = FarShare { step: *step, checkpoint: *checkpoint, pause: *pause };
        }
        share.ended = ended_in(pod);
        share.succeeded = pod.phase == PodPhase::Succeeded;
        let ends_well = pod.workers_succeeded && pod.deleted_at.is_none() && pod.phase != PodPhase::Failed;
        share.done = (share.succeeded || ends_well) && self.lost.is_none();
        if !pod.fills_its_slot() {
            return share;
        }
        share.idle = pod.is_idle().then(|| pod.created.as_second());
        share.started = !pod.unstarted;
        share.stuck = pod.is_stuck();
        share.unplaced = pod.unschedulable_since.is_some() && pod.deleted_at.is_none();
        share.waits = member.waits_to_start().filter(|_| pod.deleted_at.is_none());
        share.report = pod.epoch.number();
        share.unreported = share.report.is_none();
        share.malformed = matches!(pod.epoch, Epoch::Malformed(_));
        share.address = share.report.map(|_| pod.address_at_latest().as_second());
        share.runs = pod.workers != 0;
        share.mute = share.unreported && pod.workers != 0;
        share.trust = match (member.worker_is_of_the_past(synced), member.agent_restarted_alone()) {
            (false, _) if member.goes_before_it_runs(synced) => Trust::Suspect,
            // The next life of its agent reports the epoch again.
            (false, _) if share.ended.is_some_and(|epoch| epoch > synced) => Trust::Suspect,
            (false, _) => Trust::Sure,
            (true, false) => Trust::Suspect,
            (true, true) => Trust::Alone,
        };
        share.tells_progress = pod.tells_progress();
        share.stalled = pod.stall().filter(|_| share.trust == Trust::Sure).and(share.report);
        if pod.deleted_at.is_none() && pod.index != Some(0) {
            share.domain = pod.domain.as_ref().and_then(|domain| domain.value.clone());
        }
        share
    }
}

impl FailedWorker {
    /// Whether nobody's worker has failed: the Pod was deleted, disrupted, or refused by its node.
    pub fn is_loss(&self) -> bool {
        self.deleted || self.is_maintenance()
    }

    /// Whether its cluster has taken the Pod: a disruption (eviction, preemption, a taint, the loss of its node), or a node that
    /// does not admit it any more, or has restarted and does not start it again.
    pub fn is_maintenance(&self) -> bool {
        self.failure.disruption.is_some() || self.failure.refused || self.failure.node_restarted
    }

    pub fn of(pod: &PodView, epoch: i32) -> Self {
        Self {
            pod: pod.name.clone(),
            node: pod.node.clone(),
            index: pod.index,
            epoch,
            deleted: pod.deleted_at.is_some(),
            pod_ended: pod.phase != PodPhase::Open || pod.deleted_at.is_some(),
            reported: false,
            failure: pod.failure.as_deref().cloned().unwrap_or_default(),
        }
    }

    /// The failure that the agent of the Pod has reported.
    fn reported_by(pod: &PodView) -> Option<Self> {
        let ReportedExit { epoch, exit } = pod.reported_failure()?;
        let failure = PodFailure::reported(exit.clone(), pod.failure.as_deref());
        Some(Self { reported: true, failure, ..Self::of(pod, *epoch) })
    }
}
