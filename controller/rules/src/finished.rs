//! Ends the Jobs of a finished JobSet that still run.
//!
//! A Job is deleted, with its Pods. If a supervised worker of the Job failed in the last restart of a failed JobSet, its Pod
//! stays as evidence: its agent exits with a code that nothing restarts ([`jobset_protocol::agent::FAILED_JOBSET_EXIT_CODE`]),
//! and the Job ends by its deadline, which deletes active Pods only.

use std::ops::ControlFlow;

use jobset_api::conditions;
use jobset_store::JobView;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::reconciliation::Reconciliation;
use crate::types::Action;

/// How long the Pods of failed workers may take to end. It takes a second or two, and on a busy node, or with a busy API server,
/// much longer. A Pod may never end: its node is lost, or another of its containers runs on.
const EVIDENCE_WAIT: SignedDuration = SignedDuration::from_mins(2);

/// The `activeDeadlineSeconds` that ends a Job: the shortest that the API server accepts.
pub const ENDED_JOB_DEADLINE: i64 = 1;

/// What becomes of a Job of a finished JobSet.
enum JobEnd {
    Delete,
    End,
    Wait,
}

pub(super) fn end_active_jobs(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    if !reconciliation.status.is_finished() {
        return ControlFlow::Continue(());
    }
    let failed = reconciliation.true_condition(conditions::FAILED);
    // A clock that was ahead must not make anybody wait for longer.
    let latest = reconciliation.now.0.saturating_add(EVIDENCE_WAIT).unwrap_or(Timestamp::MAX);
    let until = failed.and_then(|failed| failed.last_transition_time.0.checked_add(EVIDENCE_WAIT).ok());
    let until = until.map(|until| if until > latest { reconciliation.now.0 } else { until });
    for (name, job) in reconciliation.observed.jobs() {
        if job.finished.is_some() || job.deleting {
            continue;
        }
        match (job_end(reconciliation, job, until), until) {
            (JobEnd::Wait, Some(until)) => reconciliation.requeue_at(until),
            (JobEnd::End, _) if job.failing || !job.suspended && job.deadline == Some(ENDED_JOB_DEADLINE) => {}
            // No deadline ends a suspended Job.
            (JobEnd::End, _) if !job.suspended => {
                reconciliation.actions.push(Action::EndJob { name: name.to_owned(), uid: job.uid.clone() });
            }
            (JobEnd::Delete | JobEnd::Wait | JobEnd::End, _) => reconciliation.delete_job(name, &job.uid),
        }
    }
    ControlFlow::Break(())
}

/// `until` is how long the Pods of failed workers are waited for; `None` if the JobSet has not failed.
fn job_end(reconciliation: &Reconciliation<'_>, job: &JobView, until: Option<Timestamp>) -> JobEnd {
    let Some(until) = until else { return JobEnd::Delete };
    let failed = reconciliation.observed.pods_of(job).into_iter();
    let failed = failed.flat_map(|pods| pods.broken_in(reconciliation.status.synced_epoch)).filter(|it| it.reported);
    let (mut any_ended, mut any_left) = (false, false);
    for worker in failed {
        any_ended |= worker.pod_ended;
        any_left |= !worker.pod_ended;
    }
    match (any_left && reconciliation.now.0 < until, any_ended) {
        (true, _) => JobEnd::Wait,
        (false, true) => JobEnd::End,
        (false, false) => JobEnd::Delete,
    }
}
