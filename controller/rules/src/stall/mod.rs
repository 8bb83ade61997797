//! Stalls: a group whose workers make no progress, as their agents report ([`STALL_AFTER`](jobset_api::labels::STALL_AFTER)).
//!
//! A report counts in the epoch that runs, of the Pod that stands for its slot. Healthy agents are silent: a member progresses unless
//! its newest report says otherwise. The group stalls when no member that tells of progress makes any. Of a member on a node that nobody
//! reaches nothing is known: the others stall without it. While members go on for certain, the slowest is a straggler, and nothing
//! restarts.
//!
//! The condition ProgressStalled is the memory: it becomes true once for a stall, and its reason Straggler says that a straggler was
//! named. A restart ends the epoch in the status write that counts it, so no stall is counted twice.

mod verdict;

use std::fmt::Write as _;
use std::ops::ControlFlow;

use jobset_api::agent::STEPS_TOLD_EVERY;
use jobset_api::{FailurePolicyAction, FailurePolicyRule, OnStall, StallAfter, conditions, event};
use jobset_store::pods::{JobPods, PodPhase, PodStall, PodView, shorten};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::backoff;
use crate::cause::{Cause, Counting};
use crate::epochs::{self, Epochs};
use crate::incident::Incident;
use crate::nodes::blame;
use crate::reconciliation::{Current, Reconciliation, node_name};
use crate::success;
use crate::types::{Fact, Trigger};
use verdict::{StallVerdict, StalledWorker, Unseen, are_of_one_kind, judge};

/// How much later than the last sign of progress of a straggler others must have told of theirs, which is then as old as
/// [`STEPS_TOLD_EVERY`] at most. Clocks of nodes differ by less than the rest.
const STRAGGLES_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// Longest message of the condition, in bytes. Every agent receives the status.
const LONGEST_CONDITION: usize = 256;
/// Longest message of an Event, in bytes. The API server takes 1024 characters.
const LONGEST_EVENT: usize = 1000;
/// How many Pods the Event shows evidence of.
const SHOWN: usize = 3;

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
    let mut stalled = stalled_workers(reconciliation, current.synced);
    // Most groups stop here, in each reconciliation.
    let unreachable = if stalled.is_empty() { Vec::new() } else { unreachable(reconciliation) };
    stalled.retain(|worker| !unreachable.iter().any(|lost| lost.uid == worker.pod.uid));
    if stalled.is_empty() {
        resume(reconciliation);
        return ControlFlow::Continue(());
    }
    let lost = unreachable.iter().filter(|pod| pod.fills_its_slot() && pod.tells_progress()).count();
    let telling: usize = reconciliation.running_pods().map(JobPods::telling_progress).sum();
    if stalled.len().saturating_add(lost) < telling {
        report_straggler(reconciliation, &stalled, current.synced);
        ControlFlow::Continue(())
    } else {
        report_stall(reconciliation, &stalled, unreachable.len())
    }
}

/// The Pods of Jobs that are not over on nodes that nobody reaches.
fn unreachable<'a>(reconciliation: &Reconciliation<'a>) -> Vec<&'a PodView> {
    let running = reconciliation.groups_of_running_jobs();
    let pods = reconciliation.observed.unreachable().into_iter();
    pods.filter(|it| running.contains_key(it.job) && it.pod.phase == PodPhase::Open).map(|it| it.pod).collect()
}

/// The workers whose agents report a stall in the epoch that runs, in the order of the names of their Pods.
fn stalled_workers<'a>(reconciliation: &Reconciliation<'a>, epoch: i32) -> Vec<StalledWorker<'a>> {
    let is_watched = reconciliation.in_place()
        && !reconciliation.is_suspended()
        && reconciliation.observed.jobset.stall_after().is_some()
        && epoch > 0;
    if !is_watched {
        return Vec::new();
    }
    let stalled = |current: &Current<'a>| {
        let group = current.group;
        let pods = current.pods.into_iter().flat_map(move |pods| pods.stalled_in(epoch));
        pods.filter_map(move |pod| Some(StalledWorker { pod, group, stall: pod.stall()?, step: pod.step() }))
    };
    let running = reconciliation.current.iter().filter(|current| !current.is_over());
    let mut workers: Vec<_> = running.flat_map(stalled).collect();
    workers.sort_by_key(|worker| &worker.pod.name);
    workers
}

/// Nobody stalls any longer.
fn resume(reconciliation: &mut Reconciliation<'_>) {
    let Some(known) = known(reconciliation) else { return };
    let (was_true, since) = (known.status == "True", known.last_transition_time.0);
    let has_epoch_begun = reconciliation.status.epochs() != reconciliation.observed.stored_epochs()
        || reconciliation.status.epoch_transition_time.as_ref().is_some_and(|at| at.0.as_second() >= since.as_second());
    let without_progress = if reconciliation.is_suspended() {
        Some("jobset is suspended")
    } else if has_epoch_begun {
        Some("a new epoch has begun")
    } else if reconciliation.observed.jobset.stall_after().is_none() {
        Some("nobody looks at the progress of the workers any longer")
    } else {
        None
    };
    set(reconciliation, false, conditions::PROGRESS_RESUMED, without_progress.unwrap_or("workers make progress"));
    if was_true && without_progress.is_none() {
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

/// Names the slowest of the members that stall while others go on, once.
fn report_straggler(reconciliation: &mut Reconciliation<'_>, stalled: &[StalledWorker<'_>], epoch: i32) {
    let is_named = known(reconciliation).is_some_and(|it| it.status == "False");
    if reconciliation.true_condition(conditions::PROGRESS_STALLED).is_some() {
        set(reconciliation, false, conditions::PROGRESS_RESUMED, "some workers make progress");
        reconciliation.note(event::PROGRESS_RESUMED, "some workers make progress again".to_owned());
    }
    let step = |worker: &StalledWorker<'_>| worker.step.filter(|_| are_of_one_kind(stalled));
    let Some(slowest) = stalled.iter().min_by_key(|worker| (step(worker), worker.stall.since)) else { return };
    if is_named || !others_go_on(reconciliation, slowest.stall.since, epoch) {
        return;
    }
    let as_slow = stalled.iter().filter(|worker| step(worker) == step(slowest)).count() - 1;
    let message = format!(
        "Pod {} on node {}{} made no progress since {}{}, and others do",
        slowest.pod.name,
        node_name(slowest.pod.node.as_ref()),
        if as_slow == 0 { " has".to_owned() } else { format!(" and {as_slow} more have") },
        time(reconciliation, slowest.stall),
        at_step(slowest.step)
    );
    set(reconciliation, false, conditions::STRAGGLER, &shorten(&message, LONGEST_CONDITION));
    reconciliation.facts.push(Fact::Straggles);
    reconciliation.warn(event::STRAGGLER, with_evidence(&message, &[*slowest]));
}

/// Whether somebody has told of progress long after this time. That nobody else reports a stall says nothing: another one may have a
/// longer limit, and be the one that the others wait for.
fn others_go_on(reconciliation: &mut Reconciliation<'_>, since: Timestamp, epoch: i32) -> bool {
    let now = reconciliation.now.0;
    let after = |time: Timestamp, duration| time.saturating_add(duration).unwrap_or(Timestamp::MAX);
    let from = after(since.min(now), STRAGGLES_AFTER);
    // A time in the future comes from a wrong clock.
    let to = after(now, backoff::seconds(STEPS_TOLD_EVERY));
    let goes_on = reconciliation.running_pods().flat_map(JobPods::all).any(|pod| {
        let progress = pod.progress_in(epoch).filter(|progress| progress.stall.is_none());
        progress.and_then(|progress| progress.at).is_some_and(|at| from <= at && at <= to)
    });
    if !goes_on {
        // Reports of steps alone wake nobody.
        reconciliation.requeue_at(from.max(to));
    }
    goes_on
}

/// The group stalls: says so once, and does what its JobSet asks for.
fn report_stall(
    reconciliation: &mut Reconciliation<'_>,
    stalled: &[StalledWorker<'_>],
    unreachable: usize,
) -> ControlFlow<()> {
    let unseen = Unseen { silent: silent(reconciliation, stalled), unreachable };
    let StallVerdict { blamed, why } = judge(stalled, unseen);
    let newest = stalled.iter().max_by_key(|worker| worker.stall.since).map(|worker| worker.stall);
    let since = newest.map(|stall| time(reconciliation, stall)).unwrap_or_default();
    let highest = stalled.iter().filter_map(|worker| worker.step).max();
    let step = at_step(highest.filter(|_| are_of_one_kind(stalled)));
    let message = format!("no worker has made progress since {since}{step}: {why}");
    let short = shorten(&message, LONGEST_CONDITION);
    let is_new = reconciliation.true_condition(conditions::PROGRESS_STALLED).is_none();
    set(reconciliation, true, conditions::PROGRESS_STALLED, &short);
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
        message: short,
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
            crate::nodes::strike(reconciliation, cause.blame.as_ref());
            let message = format!("{} (rule {})", cause.message, rule.condition_name(index));
            reconciliation.fail(conditions::FAIL_JOB_SET_ACTION, message)
        }
    }
}

/// How many Pods of the replicatedJobs of these workers have told of no progress.
fn silent(reconciliation: &Reconciliation<'_>, stalled: &[StalledWorker<'_>]) -> usize {
    let is_theirs = |group: usize| stalled.iter().any(|worker| worker.group == group);
    let current = reconciliation.current.iter().filter(|current| !current.is_over() && is_theirs(current.group));
    let pods = current.filter_map(|current| current.pods).flat_map(JobPods::all);
    pods.filter(|pod| pod.fills_its_slot() && !pod.tells_progress()).count()
}

/// What the JobSet asks for. `auto` only notifies. The first rule of the failure policy that names the reason decides before the
/// annotation does.
fn action<'a>(reconciliation: &Reconciliation<'a>, stalled: &[StalledWorker<'_>]) -> StallAction<'a> {
    use FailurePolicyAction as Do;

    let jobset = reconciliation.observed.jobset;
    if !matches!(jobset.stall_after(), Some(StallAfter::After(_))) {
        return StallAction::Notify;
    }
    match (rule(reconciliation, stalled), jobset.on_stall()) {
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
fn rule<'a>(
    reconciliation: &Reconciliation<'a>,
    stalled: &[StalledWorker<'_>],
) -> Option<(usize, &'a FailurePolicyRule)> {
    let rules = &reconciliation.observed.jobset.spec.failure_policy.as_ref()?.rules;
    let of_stalls = |rule: &FailurePolicyRule| {
        rule.on_job_failure_reasons.iter().any(|reason| reason == conditions::PROGRESS_STALLED)
            && rule.on_job_failure_message_patterns.is_empty()
    };
    let groups = reconciliation.groups();
    let targets = |rule: &FailurePolicyRule| stalled.iter().any(|worker| rule.targets(&groups[worker.group].name));
    rules.iter().enumerate().find(|(_, rule)| of_stalls(rule) && targets(rule))
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
