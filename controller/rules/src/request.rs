//! Restarts on request: the annotation [`RESTART_REQUEST`](jobset_api::labels::RESTART_REQUEST).
//!
//! The status write that begins the restart also remembers the request, with the resource version of the JobSet that has it. So a
//! request is carried out once, whoever leads, and a leader that dies before the write loses nothing: the annotation is still there.
//!
//! A status without a list of requests knows nothing of earlier ones: the JobSet is new, or comes from a backup, or a controller that
//! does not know the list has written the status since. What is requested then is noted, and not carried out.

use std::ops::ControlFlow;

use jobset_api::restart_request::{KEPT, Problem, Problems, outcome};
use jobset_api::{HandledRestartRequest, LaterFields, RestartRequest, Scope, conditions, event, labels};
use jobset_store::pods::{JobPods, PodView};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::cause::{Cause, Counting};
use crate::epochs::Epochs;
use crate::reconciliation::{Current, Reconciliation, node_name};
use crate::types::Trigger;
use crate::{backoff, budget, epochs, invalid, job_end, members, restart, success};

/// Shortest time between two uncounted restarts of a JobSet on request.
const UNCOUNTED_PERIOD: SignedDuration = SignedDuration::from_mins(10);

/// Begins to remember requests, and notes the one that cannot be carried out whatever the group does.
pub(super) fn remember(reconciliation: &mut Reconciliation<'_>) {
    let is_finished = reconciliation.status.is_finished();
    let begins = reconciliation.status.restart_requests.is_none();
    match reconciliation.observed.jobset.restart_request() {
        Some(Err(problems)) => warn_of_invalid(reconciliation, &problems),
        Some(Ok(request)) if begins || is_new(reconciliation, &request) => {
            let outcome = match () {
                () if begins => Some(outcome::FOUND),
                () if is_finished => Some(outcome::FINISHED),
                // The rules end before a request is carried out.
                () => reconciliation.observed.invalid().map(|_| outcome::INVALID),
            };
            if let Some(outcome) = outcome {
                note(reconciliation, &request, outcome);
            }
        }
        _ => {}
    }
    // Nothing is written to a JobSet that had finished before.
    if !is_finished {
        reconciliation.status.restart_requests.get_or_insert_default();
    }
}

/// Carries out a request: counts the restart, and begins it. The next reconciliation goes on with it.
pub(super) fn carry_out(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let Some(Ok(request)) = reconciliation.observed.jobset.restart_request() else { return ControlFlow::Continue(()) };
    if !is_new(reconciliation, &request) || is_preceded_by_failure(reconciliation) {
        return ControlFlow::Continue(());
    }
    let pod = request.pod.as_ref().and_then(|name| pod_named(reconciliation, name));
    if let Some(obstacle) = obstacle(reconciliation, &request, pod) {
        note(reconciliation, &request, obstacle);
        return ControlFlow::Continue(());
    }
    let counting = if request.uncounted { Counting::Ignored } else { Counting::Counted };
    let cause = cause(&request, pod);
    let is_spent = !request.uncounted && budget::is_spent(reconciliation, Scope::JobSet);
    let number = reconciliation.status.group_restarts.saturating_add(1);
    let (what, restart) = if is_spent { (outcome::BUDGET_SPENT, None) } else { (outcome::CARRIED_OUT, Some(number)) };
    record(reconciliation, &request, what, restart);
    let counted = if request.uncounted { "not counted, as requested" } else { "counted" };
    match members::slots(reconciliation).done {
        0 if reconciliation.in_place() => {
            epochs::begin(reconciliation, counting, &cause, counted, request.uncounted)?;
            ControlFlow::Break(())
        }
        done => {
            let left = if reconciliation.in_place() {
                format!("; workers that have succeeded or failed for good cannot come back in place: {done}")
            } else {
                String::new()
            };
            let message = format!("{}; {counted}{left}", cause.message);
            restart::recreate(reconciliation, counting, &Cause { message, ..cause })
        }
    }
}

/// Whether the status does not know the request.
fn is_new(reconciliation: &Reconciliation<'_>, request: &RestartRequest) -> bool {
    reconciliation.status.handled_restart_request(&request.id).is_none()
}

/// Whether a failure was observed, and what follows from it is decided first: a Job is about to fail, so that the failure policy
/// decides once it has; or the group restarts in place now, and the request finds it restarting.
fn is_preceded_by_failure(reconciliation: &Reconciliation<'_>) -> bool {
    if reconciliation.is_suspended() {
        return false;
    }
    let current = Epochs::of(&reconciliation.status);
    let runs = reconciliation.in_place() && current.synced > 0 && !current.is_over();
    runs && members::slots(reconciliation).has_failed(current.next())
        || reconciliation.current.iter().any(|current| job_end::is_about_to_fail(reconciliation, current))
}

/// Why the request is not carried out, if so. `pod` is the Pod that the request names, if it is there.
fn obstacle(
    reconciliation: &Reconciliation<'_>,
    request: &RestartRequest,
    pod: Option<&PodView>,
) -> Option<&'static str> {
    if reconciliation.is_suspended() {
        return Some(outcome::SUSPENDED);
    }
    if success::is_decided(reconciliation) {
        return Some(outcome::SUCCEEDING);
    }
    match workers(reconciliation) {
        _ if reconciliation.in_place() && Epochs::of(&reconciliation.status).is_over() => {
            return Some(outcome::RESTARTING);
        }
        _ if is_being_recreated(reconciliation) => return Some(outcome::RESTARTING),
        Workers::None | Workers::Some if is_restarting(reconciliation) => {
            return Some(outcome::RESTARTING);
        }
        Workers::None => return Some(outcome::NOT_STARTED),
        Workers::Some | Workers::All => {}
    }
    let recreates = !reconciliation.in_place() || members::slots(reconciliation).done > 0;
    if request.pod.is_some() && pod.is_none() {
        return Some(outcome::POD_NOT_FOUND);
    }
    if recreates && invalid::is_too_large(reconciliation) {
        // Its Jobs would be deleted, and none would be created.
        return Some(outcome::TOO_LARGE);
    }
    (request.uncounted && is_too_soon(reconciliation)).then_some(outcome::TOO_SOON)
}

/// How many workers have started since the group was told to start, of the Jobs that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workers {
    None,
    Some,
    All,
}

/// Workers that have ended have started. In place, they have to start in the epoch that runs, elsewhere in their Pod.
fn workers(reconciliation: &Reconciliation<'_>) -> Workers {
    let synced = reconciliation.status.synced_epoch;
    if reconciliation.in_place() && synced == 0 {
        return Workers::None;
    }
    let (mut any, mut all) = (false, true);
    for Current { job, pods, .. } in &reconciliation.current {
        let succeeded = pods.map_or(0, |pods| i64::try_from(pods.done().len()).unwrap_or(i64::MAX));
        let done = job.done_count().max(job.succeeded.into()).max(succeeded);
        let is_done = job.finished.is_some() || done > 0;
        if reconciliation.in_place() {
            let reported = pods.and_then(|pods| pods.reports().get(&synced).copied()).unwrap_or(0);
            let waits = pods.map_or(0, |pods| pods.not_started_in(synced).count());
            any |= is_done || reported > waits;
            all &= waits == 0;
        } else {
            let started = pods.map_or(0, JobPods::started);
            let missing = i64::from(job.pods).saturating_sub(done);
            any |= is_done || started > 0;
            all &= job.finished.is_some() || i64::try_from(started).unwrap_or(i64::MAX) >= missing;
        }
    }
    match (any, all) {
        (false, _) => Workers::None,
        (true, false) => Workers::Some,
        (true, true) => Workers::All,
    }
}

/// Whether the group runs, or is about to, because of a restart. The condition is true until its Jobs are ready, which may take longer
/// than the start of its workers, or for ever.
fn is_restarting(reconciliation: &Reconciliation<'_>) -> bool {
    let is_later_epoch = reconciliation.in_place() && reconciliation.status.synced_epoch > 1;
    is_later_epoch || reconciliation.true_condition(conditions::RESTARTING).is_some()
}

/// Whether Jobs of the attempt before are still there, the new ones wait for their time, or Jobs are being resumed.
fn is_being_recreated(reconciliation: &Reconciliation<'_>) -> bool {
    let is_suspended = reconciliation.current.iter().any(|it| it.job.suspended && it.job.finished.is_none());
    !reconciliation.previous.is_empty() || is_suspended || backoff::waits_until(reconciliation).is_some()
}

/// Whether the last uncounted restart on request was a short time ago. A time in the far future comes from a wrong clock.
fn is_too_soon(reconciliation: &Reconciliation<'_>) -> bool {
    let last = last_uncounted(reconciliation.status.restart_requests.iter().flatten());
    last.is_some_and(|last| reconciliation.now.0.duration_since(last).abs() < UNCOUNTED_PERIOD)
}

fn last_uncounted<'a>(handled: impl Iterator<Item = &'a HandledRestartRequest>) -> Option<Timestamp> {
    handled.filter(|it| is_uncounted_restart(it)).map(|it| it.time.0).max()
}

fn is_uncounted_restart(handled: &HandledRestartRequest) -> bool {
    handled.uncounted && handled.restart.is_some()
}

/// The Pod of this name, of the Jobs of the current attempt.
fn pod_named<'a>(reconciliation: &Reconciliation<'a>, name: &str) -> Option<&'a PodView> {
    let (job, pod) = reconciliation.observed.pods().named(name)?;
    reconciliation.current.iter().any(|current| current.job.uid == job).then_some(pod)
}

fn cause(request: &RestartRequest, pod: Option<&PodView>) -> Cause {
    let reason = request.reason.as_deref().filter(|reason| !reason.is_empty()).unwrap_or("no reason given");
    let pod = pod.map(|pod| format!("; Pod {} on node {}", pod.name, node_name(pod.node.as_ref())));
    let message = format!("restart requested: {reason}{}; request {}", pod.unwrap_or_default(), request.id);
    let reason = conditions::RESTART_REQUESTED.to_owned();
    // Nobody's worker has failed as far as anybody knows, so the group does not wait because of it.
    Cause { reason, message, trigger: Trigger::RestartRequest, failed_at: None, is_loss: true, blame: None }
}

/// Remembers a request that is not carried out, and says why.
fn note(reconciliation: &mut Reconciliation<'_>, request: &RestartRequest, outcome: &'static str) {
    record(reconciliation, request, outcome, None);
    let why = outcome::words(outcome).unwrap_or_default();
    let message = format!("restart request {} is not carried out ({outcome}): {why}", request.id);
    reconciliation.note(event::RESTART_REQUEST_NOTED, message);
}

/// Remembers what has become of a request. Of the others, those stay that were carried out, and of these the last ones, and the last
/// uncounted restart, which limits the rate.
fn record(reconciliation: &mut Reconciliation<'_>, request: &RestartRequest, outcome: &str, restart: Option<i32>) {
    let time = backoff::micro_time(reconciliation.now.0);
    let (id, uncounted) = (request.id.clone(), request.uncounted);
    let handled = reconciliation.status.restart_requests.get_or_insert_default();
    let (outcome, later) = (outcome.to_owned(), LaterFields::new());
    handled.push(HandledRestartRequest { id, outcome, uncounted, time, restart, later });
    while handled.len() > KEPT {
        let kept = last_uncounted(handled.iter());
        let limits_rate = |it: &HandledRestartRequest| is_uncounted_restart(it) && Some(it.time.0) == kept;
        // A request that was noted has changed nothing; one that was carried out would be carried out again. The newest one stays.
        let noted = handled[..KEPT].iter().position(HandledRestartRequest::is_noted);
        handled.remove(noted.unwrap_or_else(|| usize::from(limits_rate(&handled[0]))));
    }
}

fn warn_of_invalid(reconciliation: &mut Reconciliation<'_>, problems: &Problems) {
    let of = |Problem { field, required, .. }: &Problem| match field {
        Some(field) => format!("{field} {required}"),
        None => required.clone(),
    };
    let problems = problems.iter().map(of).collect::<Vec<_>>().join("; ");
    let message = format!("the annotation {} is ignored: {problems}", labels::RESTART_REQUEST);
    reconciliation.warn(event::RESTART_REQUEST_INVALID, message);
}
