//! Creates missing Jobs and resumes suspended Jobs, in the order of `startupPolicy` and `dependsOn`.

use std::collections::HashSet;
use std::ops::ControlFlow;

use jobset_api::{ReplicatedJob, RestartStrategy, StartupPolicyOrder, conditions, event, labels, names};
use jobset_store::JobView;

use crate::cause::{Cause, Counting};
use crate::reconciliation::{Current, Reconciliation};
use crate::restart::recreate;
use crate::start_wait::StartWait;
use crate::types::{Action, Trigger};
use crate::{backoff, build, epochs, invalid, members, orphans, start_wait};

/// Maximum number of Jobs that one reconciliation creates. The next reconciliation creates more, so that a plan costs what
/// exists, and not what `replicas` says.
const AT_ONCE: usize = 200;

pub(super) fn create_and_resume(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let waits = !reconciliation.in_place() && backoff::waits_until(reconciliation).is_some();
    if waits || invalid::is_too_large(reconciliation) || previous_attempt_exists(reconciliation) {
        return ControlFlow::Continue(());
    }
    let spec = &reconciliation.observed.jobset.spec;
    let suspended = spec.is_suspended();
    let order = spec.startup_policy.as_ref().map(|policy| policy.startup_policy_order);
    let in_order = order == Some(StartupPolicyOrder::InOrder) && !suspended;
    let (started, mut created, mut in_progress) = (started(reconciliation), 0, false);
    for (index, group) in reconciliation.groups().iter().enumerate() {
        let has_started = started[index] >= group.replicas();
        if let Some(wait) = start_wait::of_dependencies(reconciliation, index, &started) {
            reconciliation.start_waits.push(wait);
            continue;
        }
        if in_order && has_started {
            continue;
        }
        if !suspended {
            resume(reconciliation, index)?;
        }
        create(reconciliation, index, &mut created)?;
        in_progress = in_order;
        if in_progress {
            let later = index + 1..reconciliation.groups().len();
            reconciliation.start_waits.extend(later.map(|later| StartWait::in_order(later, index, started[index])));
            break;
        }
    }
    if in_order {
        report_startup_policy(reconciliation, in_progress);
    }
    note_resumption(reconciliation);
    ControlFlow::Continue(())
}

/// Clears the condition Suspended once the Jobs of this step are observed to be resumed. Queues read this condition, and the
/// API server may refuse the changes of a queue to the template of a Job.
fn note_resumption(reconciliation: &mut Reconciliation<'_>) {
    let is_under_way = reconciliation.actions.iter().any(|action| matches!(action, Action::ResumeJob { .. }));
    if !reconciliation.is_suspended()
        && !is_under_way
        && reconciliation.clear_condition(conditions::SUSPENDED, conditions::RESUMED_JOBS, "jobset is resumed")
    {
        reconciliation.note(conditions::RESUMED_JOBS, "jobset is resumed".to_owned());
    }
}

/// Whether BlockingRecreate must wait: it creates no Job of the new attempt while a Job or Pod of an earlier one exists.
///
/// Foreground deletion keeps a Job until its Pods are gone. Pods may outlive a Job that was deleted in another way.
fn previous_attempt_exists(reconciliation: &Reconciliation<'_>) -> bool {
    let observed = &reconciliation.observed;
    if observed.jobset.spec.restart_strategy() != RestartStrategy::BlockingRecreate {
        return false;
    }
    // A JobSet that has all its Jobs creates none.
    let specified = observed.jobset.spec.global_replicas();
    if i64::try_from(reconciliation.current.len()).is_ok_and(|current| current >= specified) {
        return false;
    }
    let previous_jobs = !reconciliation.previous.is_empty();
    // Pods of foreign Jobs do not block the JobSet, whatever their labels say.
    let others: HashSet<&str> = observed.foreign_jobs().map(|(_, job)| job.uid.as_str()).collect();
    let ours: HashSet<&str> = reconciliation.current.iter().map(|current| current.job.uid.as_str()).collect();
    let is_known = |uid: &str| ours.contains(uid) || others.contains(uid);
    previous_jobs || observed.pods().has_others_than(is_known)
}

/// For each replicatedJob, the number of Jobs that are ready or have finished: a later replicatedJob may wait for them.
///
/// The counts of the status are not enough: they count a suspended Job as ready until the Job controller has updated its
/// status.
fn started(reconciliation: &Reconciliation<'_>) -> Vec<i32> {
    let mut started = vec![0; reconciliation.groups().len()];
    for current in &reconciliation.current {
        started[current.group] += i32::from(current.job.finished.is_some() || current.job.is_ready());
    }
    started
}

/// Resumes the suspended Jobs of a replicatedJob. With in-place restart, the resumed workers begin the next epoch together.
/// Workers that have succeeded cannot, so the group is recreated if there are any.
fn resume(reconciliation: &mut Reconciliation<'_>, group: usize) -> ControlFlow<()> {
    let is_suspended = |current: &&Current<'_>| current.job.suspended && current.job.finished.is_none();
    let suspended: Vec<_> = reconciliation.jobs_of(group).filter(is_suspended).copied().collect();
    if suspended.is_empty() {
        return ControlFlow::Continue(());
    }
    let has_done_worker = |current: &Current<'_>| current.job.finished.is_some() || current.job.done_count() > 0;
    if reconciliation.in_place()
        && reconciliation.status.synced_epoch > 0
        && reconciliation.current.iter().any(has_done_worker)
    {
        let message = "the JobSet is resumed, and workers that have succeeded cannot come back in place".to_owned();
        let reason = conditions::SUCCEEDED_WORKERS.to_owned();
        let cause =
            Cause { reason, message, trigger: Trigger::Requested, failed_at: None, is_loss: false, blame: None };
        // A resumption is no failure.
        return recreate(reconciliation, Counting::Ignored, &cause);
    }
    if members::forget(reconciliation) {
        epochs::restart_uncounted(reconciliation)?;
        return ControlFlow::Break(());
    }
    for current in suspended {
        let place = build::JobPlace { group_index: group, job_index: current.job.index.unwrap_or_default() };
        let desired = Box::new(reconciliation.desired_job(place));
        let with_resources = reconciliation.settings.gates.mutable_pod_resources_for_suspended_job_sets;
        reconciliation.actions.push(Action::ResumeJob { uid: current.job.uid.clone(), with_resources, desired });
    }
    ControlFlow::Continue(())
}

/// Creates the missing Jobs of a replicatedJob.
///
/// `created` is the number of Jobs that this reconciliation creates.
fn create(reconciliation: &mut Reconciliation<'_>, group_index: usize, created: &mut usize) -> ControlFlow<()> {
    let (observed, group) = (reconciliation.observed, &reconciliation.groups()[group_index]);
    let present = reconciliation.jobs_of(group_index).len();
    if i64::try_from(present).is_ok_and(|present| present >= i64::from(group.replicas())) {
        return ControlFlow::Continue(());
    }
    let members = reconciliation.members(group_index);
    for job_index in 0..group.replicas() {
        if *created >= AT_ONCE {
            break;
        }
        let name = names::job(observed.name(), &group.name, job_index);
        match observed.entry.jobs.get(&name) {
            None => {
                if !members.of_job(job_index).is_empty() {
                    // The other members go on without those of this Job if they are not restarted.
                    epochs::restart_uncounted(reconciliation)?;
                }
                let place = build::JobPlace { group_index, job_index };
                let job = reconciliation.desired_job(place);
                reconciliation.actions.push(Action::CreateJob(Box::new(job)));
                *created += 1;
            }
            Some(job) if !observed.owns(job) => {
                if observed.is_taken(job.controller.as_ref(), job.deleting) {
                    reconciliation.warn(event::JOB_CREATION_FAILED, orphans::in_the_way(&name, job));
                }
            }
            Some(job) if !job.deleting && reconciliation.is_current(job) && !is_labelled(job, group, job_index) => {
                let (name_label, index_label) = (labels::REPLICATED_JOB_NAME, labels::JOB_INDEX);
                reconciliation.warn(
                    event::JOB_MISLABELLED,
                    format!("Job {name} is left alone: its labels {name_label} and {index_label} do not match its name; delete the Job"),
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

/// Sets one of the conditions StartupPolicyInProgress and StartupPolicyCompleted, and clears the other.
fn report_startup_policy(reconciliation: &mut Reconciliation<'_>, in_progress: bool) {
    let (condition, other, reason, message) = if in_progress {
        let message = "in order startup policy is in progress";
        let (condition, other) = (conditions::STARTUP_POLICY_IN_PROGRESS, conditions::STARTUP_POLICY_COMPLETED);
        (condition, other, conditions::IN_ORDER_IN_PROGRESS, message)
    } else {
        let message = "in order startup policy has completed";
        let (condition, other) = (conditions::STARTUP_POLICY_COMPLETED, conditions::STARTUP_POLICY_IN_PROGRESS);
        (condition, other, conditions::IN_ORDER_COMPLETED, message)
    };
    reconciliation.clear_condition(other, reason, message);
    if reconciliation.set_condition(condition, reason, message) {
        reconciliation.note(reason, message.to_owned());
    }
}
