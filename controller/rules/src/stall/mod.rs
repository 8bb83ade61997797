//! Stalls: a group whose workers make no progress, as their agents report ([`STALL_AFTER`](jobset_api::labels::STALL_AFTER)).
//!
//! A report counts in the epoch that runs, of the Pod that stands for its slot. Healthy agents are silent: a member progresses unless
//! its newest report says otherwise. The group stalls when no member that tells of progress makes any. While one does, the slowest is a
//! straggler, and nothing restarts.
//!
//! The condition ProgressStalled is the memory: it becomes true once for a stall, and its reason Straggler says that a straggler was
//! named. A restart ends the epoch in the status write that counts it, so no stall is counted twice.

mod verdict;

use std::fmt::Write as _;
use std::ops::ControlFlow;

use jobset_api::{FailurePolicyAction, FailurePolicyRule, JobSetStatus, OnStall, StallAfter, conditions, event};
use jobset_store::Observed;
use jobset_store::pods::{JobPods, PodStall, PodView, shorten};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::cause::{Cause, Counting};
use crate::epochs::{self, Epochs};
use crate::incident::Incident;
use crate::nodes::blame;
use crate::reconciliation::{Reconciliation, by_name, node_name};
use crate::success;
use crate::types::{Fact, Trigger};
use verdict::{StallVerdict, StalledWorker, judge};

/// For how long a member reports a stall before it is a straggler: the others may report theirs.
const STRAGGLES_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// Longest message of the condition, in bytes. Every agent receives the status.
const LONGEST_CONDITION: usize = 256;
/// Longest message of an Event, in bytes. The API server takes 1024 characters.
const LONGEST_EVENT: usize = 1000;
/// How many Pods the Event shows evidence of.
const SHOWN: usize = 3;

/// What a group that stalls does.
enum StallAction<'a> {
    Notify,
    /// The group restarts. The rule has asked for it, if there is one.
    Restart(Counting, Option<(usize, &'a FailurePolicyRule)>),
    Fail(usize, &'a FailurePolicyRule),
}

/// Says that the group stalls, or that a member straggles, and restarts the group if its JobSet asks for that.
pub(super) fn report(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let current = Epochs::of(&reconciliation.status);
    let restarts = reconciliation.in_place() && !reconciliation.is_suspended() && current.is_over();
    if restarts || success::is_decided(reconciliation) {
        // The next epoch ends the stall, in the write that begins it.
        return ControlFlow::Continue(());
    }
    let pods = stalled_pods(reconciliation, current);
    let stalled: Vec<_> = pods.iter().filter_map(|pod| worker(pod)).collect();
    let telling: usize = reconciliation.running_pods().map(JobPods::telling_progress).sum();
    if stalled.is_empty() {
        resume(reconciliation);
        ControlFlow::Continue(())
    } else if stalled.len() < telling {
        report_straggler(reconciliation, &stalled);
        ControlFlow::Continue(())
    } else {
        report_stall(reconciliation, &stalled)
    }
}

fn worker(pod: &PodView) -> Option<StalledWorker<'_>> {
    Some(StalledWorker { pod, stall: pod.stall()?, step: pod.step() })
}

/// The Pods that report a stall in the epoch that runs, in the order of their names.
fn stalled_pods<'a>(reconciliation: &Reconciliation<'a>, current: Epochs) -> Vec<&'a PodView> {
    let is_watched = reconciliation.in_place()
        && !reconciliation.is_suspended()
        && reconciliation.observed.jobset.stall_after().is_some()
        && current.synced > 0;
    if !is_watched {
        return Vec::new();
    }
    by_name(reconciliation.running_pods().flat_map(|pods| pods.stalled_in(current.synced)))
}

/// Nobody stalls any longer.
fn resume(reconciliation: &mut Reconciliation<'_>) {
    let Some(known) = known(reconciliation) else { return };
    let (was_true, since) = (known.status == "True", known.last_transition_time.0);
    let has_epoch_begun = reconciliation.status.epochs() != reconciliation.observed.stored_epochs()
        || reconciliation.status.epoch_transition_time.as_ref().is_some_and(|at| at.0.as_second() >= since.as_second());
    let why = if reconciliation.is_suspended() {
        "jobset is suspended"
    } else if has_epoch_begun {
        "a new epoch has begun"
    } else {
        "workers make progress"
    };
    set(reconciliation, false, conditions::PROGRESS_RESUMED, why);
    if was_true && why == "workers make progress" {
        reconciliation.note(event::PROGRESS_RESUMED, "workers make progress again".to_owned());
    }
}

/// The condition, unless it says that all is well.
fn known<'a>(reconciliation: &'a Reconciliation<'_>) -> Option<&'a Condition> {
    let is_known = |it: &&Condition| {
        it.type_ == conditions::PROGRESS_STALLED && (it.status == "True" || it.reason == conditions::STRAGGLER)
    };
    reconciliation.status.conditions.iter().find(is_known)
}

fn set(reconciliation: &mut Reconciliation<'_>, status: bool, reason: &str, message: &str) {
    let (conditions, now) = (&mut reconciliation.status.conditions, reconciliation.now);
    conditions::set(conditions, conditions::PROGRESS_STALLED, status, reason, message, now);
}

/// Names the slowest of the members that stall while others make progress, once.
fn report_straggler(reconciliation: &mut Reconciliation<'_>, stalled: &[StalledWorker<'_>]) {
    let is_named = known(reconciliation).is_some_and(|it| it.status == "False");
    let Some(slowest) = stalled.iter().min_by_key(|worker| (worker.step, worker.stall.since)) else { return };
    let was_stalled = reconciliation.true_condition(conditions::PROGRESS_STALLED).is_some();
    if was_stalled {
        set(reconciliation, false, conditions::PROGRESS_RESUMED, "some workers make progress");
        reconciliation.note(event::PROGRESS_RESUMED, "some workers make progress again".to_owned());
    }
    let due = straggles_at(reconciliation, slowest);
    if is_named || !reconciliation.is_due(due) {
        return;
    }
    let message = format!(
        "Pod {} on node {} has made no progress since {}{}, and others do",
        slowest.pod.name,
        node_name(slowest.pod.node.as_ref()),
        time(reconciliation, slowest.stall),
        at_step(slowest.step)
    );
    set(reconciliation, false, conditions::STRAGGLER, &shorten(&message, LONGEST_CONDITION));
    reconciliation.facts.push(Fact::Straggles);
    reconciliation.warn(event::STRAGGLER, with_evidence(&message, &[*slowest]));
}

/// When a member is a straggler, if no other has reported a stall until then.
fn straggles_at(reconciliation: &Reconciliation<'_>, worker: &StalledWorker<'_>) -> Timestamp {
    let limit = match reconciliation.observed.jobset.stall_after() {
        Some(StallAfter::After(after)) => SignedDuration::try_from(after).unwrap_or(STRAGGLES_AFTER),
        _ => STRAGGLES_AFTER,
    };
    let at = worker.pod.progress.as_ref().and_then(|progress| progress.at);
    let reported = at.unwrap_or_else(|| worker.stall.since.saturating_add(limit).unwrap_or(Timestamp::MAX));
    // The others have told of their progress since the condition changed, one after the other.
    let is_stalls = |it: &&Condition| it.type_ == conditions::PROGRESS_STALLED;
    let changed = reconciliation.status.conditions.iter().find(is_stalls).map(|it| it.last_transition_time.0);
    let reported = changed.map_or(reported, |changed| changed.max(reported));
    // A time in the future comes from a wrong clock.
    let reported = reported.min(reconciliation.now.0.saturating_add(STRAGGLES_AFTER).unwrap_or(reported));
    reported.saturating_add(STRAGGLES_AFTER).unwrap_or(Timestamp::MAX)
}

/// The group stalls: says so once, and does what its JobSet asks for.
fn report_stall(reconciliation: &mut Reconciliation<'_>, stalled: &[StalledWorker<'_>]) -> ControlFlow<()> {
    let StallVerdict { blamed, why } = judge(stalled);
    let newest = stalled.iter().max_by_key(|worker| worker.stall.since).map(|worker| worker.stall);
    let since = newest.map(|stall| time(reconciliation, stall)).unwrap_or_default();
    let step = at_step(stalled.iter().filter_map(|worker| worker.step).max());
    let message = format!("no worker has made progress since {since}{step}: {why}");
    let is_new = reconciliation.true_condition(conditions::PROGRESS_STALLED).is_none();
    set(reconciliation, true, conditions::PROGRESS_STALLED, &shorten(&message, LONGEST_CONDITION));
    if is_new {
        reconciliation.stalled_since = newest.map(|stall| stall.since);
        let mut shown: Vec<StalledWorker<'_>> = stalled.to_vec();
        shown.sort_by_key(|worker| blamed.is_none_or(|place| worker.pod.uid != stalled[place].pod.uid));
        reconciliation.facts.push(Fact::Stalls { blamed: blamed.is_some() });
        reconciliation.warn(event::PROGRESS_STALLED, with_evidence(&message, &shown));
    }
    let blame =
        blamed.and_then(|place| blame::of_stalled(reconciliation, stalled[place].pod, stalled[place].stall.since));
    let cause = Cause {
        reason: conditions::PROGRESS_STALLED.to_owned(),
        message: shorten(&message, LONGEST_CONDITION),
        trigger: Trigger::Stalled,
        failed_at: None,
        is_loss: false,
        blame,
    };
    match action(reconciliation, stalled) {
        StallAction::Notify => ControlFlow::Continue(()),
        StallAction::Restart(counting, rule) => {
            let mut counted = if counting == Counting::Ignored { "not counted" } else { "counted" }.to_owned();
            if let Some((index, rule)) = rule {
                reconciliation.facts.push(Fact::PolicyApplied { action: rule.action, rule: Some(index) });
                counted = format!("{counted} by rule {}", rule.condition_name(index));
            }
            epochs::restart_for(reconciliation, Incident { cause, counting, counted })
        }
        StallAction::Fail(index, rule) => {
            reconciliation.facts.push(Fact::PolicyApplied { action: rule.action, rule: Some(index) });
            crate::nodes::strike(reconciliation, cause.blame.as_ref(), cause.trigger);
            let message = format!("{} (rule {})", cause.message, rule.condition_name(index));
            reconciliation.fail(conditions::FAIL_JOB_SET_ACTION, message)
        }
    }
}

/// What the JobSet asks for. `auto` only notifies. The first rule of the failure policy that names the reason decides before the
/// annotation does.
fn action<'a>(reconciliation: &Reconciliation<'a>, stalled: &[StalledWorker<'_>]) -> StallAction<'a> {
    use FailurePolicyAction as Do;

    let jobset = reconciliation.observed.jobset;
    if !matches!(jobset.stall_after(), Some(StallAfter::After(_))) {
        return StallAction::Notify;
    }
    match (rule(reconciliation.observed, stalled), jobset.on_stall()) {
        (Some((index, rule)), _) => match rule.action {
            Do::FailJobSet => StallAction::Fail(index, rule),
            Do::FailJob => StallAction::Notify,
            Do::RestartJobSetAndIgnoreMaxRestarts | Do::RestartJobAndIgnoreMaxRestarts => {
                StallAction::Restart(Counting::Ignored, Some((index, rule)))
            }
            // The workers of one barrier cannot go on without those of a Job.
            Do::RestartJobSet | Do::RestartJob | Do::RecreateJob | Do::RestartReplicatedJob => {
                StallAction::Restart(Counting::Counted, Some((index, rule)))
            }
        },
        (None, OnStall::Restart) => StallAction::Restart(Counting::Counted, None),
        (None, OnStall::Notify) => StallAction::Notify,
    }
}

/// The first rule that names the reason and a replicatedJob that stalls. Patterns are those of messages of Jobs.
fn rule<'a>(observed: Observed<'a>, stalled: &[StalledWorker<'_>]) -> Option<(usize, &'a FailurePolicyRule)> {
    let rules = &observed.jobset.spec.failure_policy.as_ref()?.rules;
    let of_stalls = |rule: &FailurePolicyRule| {
        rule.on_job_failure_reasons.iter().any(|reason| reason == conditions::PROGRESS_STALLED)
            && rule.on_job_failure_message_patterns.is_empty()
    };
    let job_of = |worker: &StalledWorker<'_>| worker.pod.job_uid.clone();
    let targets = |rule: &FailurePolicyRule| {
        let jobs: Vec<_> = stalled.iter().filter_map(job_of).collect();
        observed.jobs().any(|(_, job)| rule.targets(&job.replicated_job) && jobs.contains(&job.uid))
    };
    rules
        .iter()
        .enumerate()
        .find(|(_, rule)| of_stalls(rule) && (rule.target_replicated_jobs.is_empty() || targets(rule)))
}

/// The time of a stall for people. A time in the future comes from a wrong clock.
fn time(reconciliation: &Reconciliation<'_>, stall: &PodStall) -> String {
    format!("{:.0}", stall.since.min(reconciliation.now.0))
}

fn at_step(step: Option<i64>) -> String {
    step.map(|step| format!(", step {step}")).unwrap_or_default()
}

/// The message with what was seen of the first Pods.
fn with_evidence(message: &str, workers: &[StalledWorker<'_>]) -> String {
    let mut text = message.to_owned();
    for worker in workers.iter().take(SHOWN) {
        let PodStall { phase, within, evidence, .. } = worker.stall;
        let declared = [("phase", phase), ("in", within)];
        let declared = declared.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_ref()?)));
        let step = worker.step.map(|step| format!("step={step}"));
        let evidence = Some(evidence.to_string()).filter(|it| !it.is_empty());
        let seen: Vec<String> = step.into_iter().chain(declared).chain(evidence).collect();
        if !seen.is_empty() {
            let _ = write!(text, "; Pod {} {}", worker.pod.name, seen.join(" "));
        }
    }
    shorten(&text, LONGEST_EVENT)
}

/// Keeps how far the workers have come, if the status changes anyway.
pub(super) fn keep_in_write(reconciliation: &mut Reconciliation<'_>) {
    let none = JobSetStatus::default();
    if *reconciliation.observed.jobset.status.as_ref().unwrap_or(&none) != reconciliation.status {
        keep_progress(reconciliation);
    }
}

/// Keeps how far the workers have come, in a status that will be written.
pub(super) fn keep_progress(reconciliation: &mut Reconciliation<'_>) {
    if reconciliation.observed.jobset.stall_after().is_none() {
        return;
    }
    let pods = || reconciliation.current.iter().filter_map(|current| current.pods);
    let step = pods().filter_map(JobPods::highest_step).max();
    let checkpoint = pods().filter_map(JobPods::last_checkpoint).max();
    let pause = pods().filter_map(JobPods::longest_pause).max();
    if step.is_some() || checkpoint.is_some() || pause.is_some() {
        let kept = reconciliation.status.progress.get_or_insert_default();
        kept.step = kept.step.max(step);
        kept.checkpoint = kept.checkpoint.max(checkpoint);
        kept.longest_pause_seconds = kept.longest_pause_seconds.max(pause);
    }
}
