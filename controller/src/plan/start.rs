//! Creates the Jobs that are missing and resumes those that are suspended, in the order that the JobSet asks for.

use std::collections::HashSet;
use std::ops::ControlFlow;

use jobset_api::{DependsOnStatus, ReplicatedJob, RestartStrategy, StartupPolicyOrder};
use jobset_api::{conditions, event, labels, names};

use super::pass::{Current, Pass, is_current};
use super::restart::{Cause, Counting, recreate};
use super::{Action, Trigger};
use crate::build;
use crate::store::JobView;

/// Jobs created in one pass. The next pass, which sees these, creates the rest: a JobSet of a million Jobs takes its turn
/// with others.
const AT_ONCE: usize = 1000;

pub(super) fn in_order(pass: &mut Pass<'_>) -> ControlFlow<()> {
    if previous_attempt_is_in_the_way(pass) {
        return ControlFlow::Continue(());
    }
    let spec = &pass.seen.jobset.spec;
    let suspended = spec.is_suspended();
    let order = spec.startup_policy.as_ref().map(|policy| policy.startup_policy_order);
    let in_order = order == Some(StartupPolicyOrder::InOrder) && !suspended;
    let started = started(pass);
    for (index, group) in pass.groups().iter().enumerate() {
        let has_started = started[index] >= group.replicas();
        if !dependencies_are_met(pass, group, &started) || in_order && has_started {
            continue;
        }
        if !suspended {
            resume(pass, index)?;
        }
        create(pass, index)?;
        if in_order {
            let message = "in order startup policy is in progress";
            set_exclusively(pass, conditions::STARTUP_POLICY_IN_PROGRESS, conditions::IN_ORDER_IN_PROGRESS, message);
            note_resumption(pass);
            return ControlFlow::Continue(());
        }
    }
    if in_order {
        let message = "in order startup policy has completed";
        set_exclusively(pass, conditions::STARTUP_POLICY_COMPLETED, conditions::IN_ORDER_COMPLETED, message);
    }
    note_resumption(pass);
    ControlFlow::Continue(())
}

/// Not before the Jobs whose turn it is were seen to be resumed: the API server may refuse what a queue wrote into their
/// template, and queues read this condition.
fn note_resumption(pass: &mut Pass<'_>) {
    let is_under_way = pass.actions.iter().any(|action| matches!(action, Action::ResumeJob { .. }));
    if !pass.seen.jobset.spec.is_suspended()
        && !is_under_way
        && pass.clear_condition(conditions::SUSPENDED, conditions::RESUMED_JOBS, "jobset is resumed")
    {
        pass.tell(conditions::RESUMED_JOBS, "jobset is resumed".to_owned());
    }
}

/// BlockingRecreate: no Job of the new attempt while a Job or Pod of the old one is left. Jobs are deleted in the
/// foreground, so one that is left may still have Pods, and Pods of Jobs that were deleted otherwise may be left, too.
fn previous_attempt_is_in_the_way(pass: &Pass<'_>) -> bool {
    let seen = &pass.seen;
    if seen.jobset.spec.restart_strategy() != RestartStrategy::BlockingRecreate {
        return false;
    }
    // Nothing is in the way of a JobSet that has all its Jobs.
    let wanted: i64 = pass.groups().iter().map(|group| i64::from(group.replicas())).sum();
    if i64::try_from(pass.current.len()).is_ok_and(|current| current >= wanted) {
        return false;
    }
    let previous_jobs = seen.jobs().any(|(_, job)| !is_current(&pass.status, job));
    // Those of Jobs that are not the JobSet's own have nothing to do with it, whatever their labels say.
    let others: HashSet<&str> = seen.foreign_jobs().map(|(_, job)| job.uid.as_str()).collect();
    let ours: HashSet<&str> = pass.current.iter().map(|current| current.job.uid.as_str()).collect();
    let is_known = |uid: &str| ours.contains(uid) || others.contains(uid);
    previous_jobs || seen.pods().is_some_and(|pods| pods.has_others_than(is_known))
}

fn dependencies_are_met(pass: &Pass<'_>, group: &ReplicatedJob, started: &[i32]) -> bool {
    group.depends_on.iter().all(|dependency| {
        let mut targets = pass.groups().iter().zip(started);
        let Some((target, started)) = targets.find(|(target, _)| target.name == dependency.name) else { return false };
        match dependency.status {
            DependsOnStatus::Complete => {
                pass.status.replicated_job(&target.name).is_some_and(|status| status.succeeded >= target.replicas())
            }
            DependsOnStatus::Ready => *started >= target.replicas(),
        }
    })
}

/// For each replicatedJob, the Jobs that have got as far as a later one may wait for, whatever became of them. The counts
/// of the status do not say this: they count a suspended Job as ready until the Job controller has seen that it is.
fn started(pass: &Pass<'_>) -> Vec<i32> {
    let mut started = vec![0; pass.groups().len()];
    for current in &pass.current {
        started[current.group] += i32::from(current.job.finished.is_some() || current.job.is_ready());
    }
    started
}

/// Resumes the suspended Jobs of a replicatedJob. In place, the workers that come back advance to the next epoch, and
/// those that have succeeded cannot.
fn resume(pass: &mut Pass<'_>, group: usize) -> ControlFlow<()> {
    let is_suspended = |current: &&Current<'_>| current.job.suspended && current.job.finished.is_none();
    let suspended: Vec<_> = pass.current.iter().filter(is_suspended).filter(|it| it.group == group).copied().collect();
    if suspended.is_empty() {
        return ControlFlow::Continue(());
    }
    let someone_is_done = |current: &Current<'_>| current.job.finished.is_some() || current.job.done_count() > 0;
    if pass.in_place() && pass.status.synced_epoch > 0 && pass.current.iter().any(someone_is_done) {
        let message = "resumed, and some workers have succeeded: they cannot come back in place".to_owned();
        let reason = conditions::SUCCEEDED_WORKERS.to_owned();
        let cause = Cause { reason, message, trigger: Trigger::JobFailed, failed_at: None };
        // Nothing has failed.
        return recreate(pass, Counting::Ignored, &cause);
    }
    pass.announce_free_epoch()?;
    for current in suspended {
        let place = build::JobPlace { group_index: group, job_index: current.job.index.unwrap_or_default() };
        let desired = Box::new(pass.build(place));
        pass.actions.push(Action::ResumeJob { uid: current.job.uid.clone(), desired });
    }
    ControlFlow::Continue(())
}

/// Creates the Jobs of a replicatedJob that are missing.
fn create(pass: &mut Pass<'_>, group_index: usize) -> ControlFlow<()> {
    let (seen, group) = (pass.seen, &pass.groups()[group_index]);
    let jobset_name = seen.jobset.metadata.name.as_deref().unwrap_or_default();
    let present = pass.current.iter().filter(|current| current.group == group_index).count();
    if i64::try_from(present).is_ok_and(|present| present >= i64::from(group.replicas())) {
        return ControlFlow::Continue(());
    }
    let mut created = pass.actions.iter().filter(|action| matches!(action, Action::CreateJob(_))).count();
    for job_index in 0..group.replicas() {
        if created >= AT_ONCE {
            break;
        }
        let name = names::job(jobset_name, &group.name, job_index);
        match seen.job(&name) {
            None => {
                pass.announce_free_epoch()?;
                let place = build::JobPlace { group_index, job_index };
                let job = pass.build(place);
                pass.actions.push(Action::CreateJob(Box::new(job)));
                created += 1;
            }
            Some(job) if !seen.owns(job) => {
                // The Jobs of a deleted JobSet of this name make room by themselves.
                let predecessor = job.controller.as_ref().is_some_and(|owner| owner.is_jobset(jobset_name));
                if !job.deleting && !predecessor {
                    let owner = job.controller.as_ref().map_or("nobody", |owner| &owner.name);
                    pass.warn(
                        event::JOB_CREATION_FAILED,
                        format!("Job {name} exists and is controlled by {owner}: delete it, or rename the JobSet"),
                    );
                }
            }
            Some(job) if !job.deleting && is_current(&pass.status, job) && !is_labelled(job, group, job_index) => {
                let (name_label, index_label) = (labels::REPLICATED_JOB_NAME, labels::JOB_INDEX);
                pass.warn(
                    "JobMislabelled",
                    format!("Job {name} is left alone: delete it, its labels {name_label} and {index_label} are not those of its name"),
                );
            }
            Some(_) => {}
        }
    }
    ControlFlow::Continue(())
}

fn is_labelled(job: &JobView, group: &ReplicatedJob, index: i32) -> bool {
    job.replicated_job == group.name && job.index == Some(index)
}

/// The startup policy is either in progress or completed.
fn set_exclusively(pass: &mut Pass<'_>, type_: &'static str, reason: &'static str, message: &str) {
    let other = if type_ == conditions::STARTUP_POLICY_COMPLETED {
        conditions::STARTUP_POLICY_IN_PROGRESS
    } else {
        conditions::STARTUP_POLICY_COMPLETED
    };
    pass.clear_condition(other, reason, message);
    if pass.set_condition(type_, true, reason, message) {
        pass.tell(reason, message.to_owned());
    }
}
