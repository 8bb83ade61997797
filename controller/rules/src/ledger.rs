//! The ledger: each moment of a JobSet's life is in one bucket, and `status.ledger` keeps the sums.
//!
//! It is written with other changes of the status. Between two writes, time belongs to the bucket of the first one. It is a reason to
//! write only where a suspension begins or ends, which may last for days, and nothing else tells of that: the JobSet was resumed for a
//! moment. The sums and the time since the last write are the life of the JobSet, whichever leader wrote them.

use jobset_api::{
    JobSetStatus, LaterFields, Ledger, LedgerAddition, LedgerBucket, LedgerTimes, ReplicatedJob, StartupPolicyOrder,
    conditions,
};
use jobset_store::pods::JobPods;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::reconciliation::{Current, Reconciliation};
use crate::{backoff, members};

/// Whether the stored ledger has a suspension that is over, or lacks one, and no change of a Job will lead to a write.
pub(super) fn is_outdated(reconciliation: &Reconciliation<'_>) -> bool {
    let jobset = reconciliation.observed.jobset;
    let stored = jobset.status.as_ref().filter(|_| jobset.is_managed_here());
    let ledger = stored.and_then(|status| status.ledger.as_ref()).filter(|it| it.bucket != LedgerBucket::Finished);
    let is_at_rest = reconciliation.actions.is_empty();
    ledger
        .is_some_and(|ledger| is_at_rest && (ledger.bucket == LedgerBucket::Suspended) != reconciliation.is_suspended())
}

/// Brings the ledger up to date, in a status that will be written.
pub(super) fn keep(reconciliation: &mut Reconciliation<'_>) {
    let jobset = reconciliation.observed.jobset;
    if !jobset.is_managed_here() {
        return;
    }
    let (none, now) = (JobSetStatus::default(), reconciliation.now.0);
    let stored = jobset.status.as_ref().unwrap_or(&none);
    let created = jobset.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let first = || (!stored.is_finished()).then(|| begin(stored, created, reconciliation.is_suspended(), now));
    let Some(mut ledger) = stored.ledger.clone().or_else(first) else { return };
    if ledger.bucket == LedgerBucket::Finished {
        return;
    }
    let next = bucket(reconciliation);
    let change = change(reconciliation, ledger.bucket, next);
    advance(&mut ledger, now, change);
    ledger.bucket = next;
    if let Some(lost) = reconciliation.lost {
        ledger.redone_steps = ledger.redone_steps.saturating_add(lost.steps);
        let redone = ledger.redone_milliseconds.saturating_add(lost.milliseconds);
        ledger.redone_milliseconds = redone.min(ledger.milliseconds.running);
    }
    reconciliation.status.ledger = Some(ledger);
}

/// The ledger of a JobSet that has none: from its creation, if no controller has counted its Jobs before, else from now on.
fn begin(stored: &JobSetStatus, created: Option<Timestamp>, is_suspended: bool, now: Timestamp) -> Ledger {
    let is_new = stored.jobs_ready.is_empty() && stored.replicated_jobs_status.is_empty();
    let since = created.filter(|_| is_new).map_or(now, |created| created.min(now));
    Ledger {
        bucket: if is_suspended { LedgerBucket::Suspended } else { LedgerBucket::Scheduling },
        since: backoff::micro_time(since),
        milliseconds: LedgerTimes::default(),
        last_addition: None,
        redone_milliseconds: 0,
        redone_steps: 0,
        later: LaterFields::new(),
    }
}

/// A bucket in which the JobSet has been since a time in the past, as is known only now.
fn change(
    reconciliation: &Reconciliation<'_>,
    before: LedgerBucket,
    next: LedgerBucket,
) -> Option<(LedgerBucket, Timestamp)> {
    match (before, next) {
        (LedgerBucket::Scheduling, LedgerBucket::Starting | LedgerBucket::Running) => {
            Some((LedgerBucket::Starting, placed_at(reconciliation)?))
        }
        (LedgerBucket::Running, _) => Some((LedgerBucket::Stalled, reconciliation.stalled_since?)),
        _ => None,
    }
}

/// Adds the time up to now to the bucket; that since the change to the other one.
///
/// A clock that has gone back, or that of a leader before was ahead: the surplus goes from what the last write has added, which has it if
/// that leader has written once, and else from the largest sum. `since` moves by what is counted, so that no fraction of a millisecond
/// gets lost.
fn advance(ledger: &mut Ledger, now: Timestamp, change: Option<(LedgerBucket, Timestamp)>) {
    let MicroTime(since) = ledger.since;
    let elapsed = milliseconds(since, now);
    let counted = if elapsed >= 0 {
        let (other, later) = change
            .map_or((ledger.bucket, 0), |(bucket, changed)| (bucket, milliseconds(changed.clamp(since, now), now)));
        let parts = [(other, later), (ledger.bucket, elapsed - later)];
        for (bucket, part) in parts {
            if let Some(time) = ledger.milliseconds.of_mut(bucket) {
                *time = time.saturating_add(part);
            }
        }
        let largest = parts.into_iter().max_by_key(|(_, part)| *part).filter(|(_, part)| *part > 0);
        if let Some((bucket, milliseconds)) = largest {
            ledger.last_addition = Some(LedgerAddition { bucket, milliseconds, later: LaterFields::new() });
        }
        elapsed
    } else {
        let last = ledger.last_addition.take();
        let from_last =
            last.map_or(0, |last| take_back(&mut ledger.milliseconds, last.bucket, elapsed.max(-last.milliseconds)));
        let largest = LedgerBucket::TIMED.into_iter().max_by_key(|bucket| ledger.milliseconds.of(*bucket));
        let left = elapsed - from_last;
        from_last + largest.map_or(0, |largest| take_back(&mut ledger.milliseconds, largest, left))
    };
    let since = since.saturating_add(SignedDuration::from_millis(counted)).unwrap_or(now);
    ledger.since = backoff::micro_time(since);
}

/// Takes a surplus from a sum, which is never less than zero. Returns the change.
fn take_back(times: &mut LedgerTimes, bucket: LedgerBucket, surplus: i64) -> i64 {
    let Some(time) = times.of_mut(bucket) else { return 0 };
    let change = surplus.max(-*time).min(0);
    *time += change;
    change
}

fn milliseconds(from: Timestamp, to: Timestamp) -> i64 {
    i64::try_from(to.duration_since(from).as_millis()).unwrap_or(0)
}

/// What the JobSet spends its time with from now on.
fn bucket(reconciliation: &Reconciliation<'_>) -> LedgerBucket {
    if reconciliation.status.is_finished() {
        LedgerBucket::Finished
    } else if reconciliation.is_suspended() {
        LedgerBucket::Suspended
    } else if backoff::waits_until(reconciliation).is_some() {
        LedgerBucket::Waiting
    } else if reconciliation.true_condition(conditions::RESTARTING).is_some() {
        LedgerBucket::Restarting
    } else if !runs(reconciliation) {
        if is_placed(reconciliation) { LedgerBucket::Starting } else { LedgerBucket::Scheduling }
    } else if reconciliation.true_condition(conditions::PROGRESS_STALLED).is_some() {
        LedgerBucket::Stalled
    } else {
        LedgerBucket::Running
    }
}

/// Whether the workers run: in place those of all members, else those of all Jobs.
fn runs(reconciliation: &Reconciliation<'_>) -> bool {
    if reconciliation.in_place() {
        return !reconciliation.status.epochs().is_closed() && members::slots(reconciliation).all_run();
    }
    let ready = |current: &Current<'_>| current.is_over() || current.job.is_ready();
    has_its_jobs(reconciliation) && reconciliation.current.iter().all(ready)
}

/// Whether all Jobs exist but those of replicatedJobs that wait for others (`dependsOn`).
fn has_its_jobs(reconciliation: &Reconciliation<'_>) -> bool {
    has_jobs_but(reconciliation, |_, group| !group.depends_on.is_empty())
}

/// Whether all Jobs exist but those of replicatedJobs of which this is true and none exists.
fn has_jobs_but(reconciliation: &Reconciliation<'_>, waits: impl Fn(usize, &ReplicatedJob) -> bool) -> bool {
    let mut groups = reconciliation.groups().iter().enumerate();
    let are_there = groups.all(|(place, group)| {
        let jobs = reconciliation.jobs_of(place).len();
        jobs == 0 && waits(place, group) || i64::try_from(jobs).is_ok_and(|jobs| jobs >= i64::from(group.replicas()))
    });
    are_there && !reconciliation.current.is_empty()
}

/// Whether all Pods exist and have a node. Those of a replicatedJob whose turn has not come (`startupPolicy`) wait for workers to start,
/// not for nodes.
fn is_placed(reconciliation: &Reconciliation<'_>) -> bool {
    let is_placed = |current: &Current<'_>| {
        let pods = current.pods.into_iter().flat_map(JobPods::all);
        let placed = pods.filter(|pod| pod.fills_its_slot() && pod.node.is_some()).count();
        let open = i64::from(current.job.pods).saturating_sub(current.job.done_count());
        i64::try_from(placed).is_ok_and(|placed| placed >= open)
    };
    let policy = reconciliation.observed.jobset.spec.startup_policy.as_ref();
    let in_order = policy.is_some_and(|policy| policy.startup_policy_order == StartupPolicyOrder::InOrder);
    let waits = |place: usize, group: &ReplicatedJob| !group.depends_on.is_empty() || in_order && place > 0;
    has_jobs_but(reconciliation, waits)
        && reconciliation.current.iter().all(|current| current.is_over() || is_placed(current))
}

/// When the last Pod got its address, which it does on its node.
fn placed_at(reconciliation: &Reconciliation<'_>) -> Option<Timestamp> {
    let pods = reconciliation.running_pods().flat_map(JobPods::all);
    pods.filter_map(|pod| pod.address_since).max()
}

#[cfg(test)]
mod tests;
