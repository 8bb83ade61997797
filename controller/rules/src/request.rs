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
use jobset_store::pods::PodView;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::cause::{Cause, Counting};
use crate::epochs::Epochs;
use crate::reconciliation::{Reconciliation, node_name};
use crate::types::Trigger;
use crate::{backoff, budget, epochs, invalid, members, restart, success};

/// Shortest time between two uncounted restarts of a JobSet on request.
const UNCOUNTED_PERIOD: SignedDuration = SignedDuration::from_mins(10);

/// Begins to remember requests, and notes the one that cannot be carried out whatever the group does.
pub(super) fn remember(reconciliation: &mut Reconciliation<'_>) {
    let is_finished = reconciliation.status.is_finished();
    let begins = reconciliation.status.restart_requests.is_none();
    match reconciliation.observed.jobset.restart_request() {
        Some(Err(problems)) => warn_of_invalid(reconciliation, &problems),
        Some(Ok(request)) if begins || is_finished && is_new(reconciliation, &request) => {
            note(reconciliation, &request, if begins { outcome::FOUND } else { outcome::FINISHED });
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

/// Whether a failure that was observed restarts the group in place now: then the request finds the group restarting.
fn is_preceded_by_failure(reconciliation: &Reconciliation<'_>) -> bool {
    let current = Epochs::of(&reconciliation.status);
    let runs = reconciliation.in_place() && current.synced > 0 && !current.is_over();
    runs && !reconciliation.is_suspended() && members::slots(reconciliation).has_failed(current.next())
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
    if reconciliation.in_place() && Epochs::of(&reconciliation.status).is_over() || is_being_recreated(reconciliation) {
        return Some(outcome::RESTARTING);
    }
    let has_begun = !reconciliation.in_place() || reconciliation.status.synced_epoch > 0;
    if !has_begun || reconciliation.current.is_empty() {
        return Some(outcome::NOT_STARTED);
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

/// Remembers what has become of a request. Of the others, the last ones stay, and the last uncounted restart, which limits the rate.
fn record(reconciliation: &mut Reconciliation<'_>, request: &RestartRequest, outcome: &str, restart: Option<i32>) {
    let time = backoff::micro_time(reconciliation.now.0);
    let (id, uncounted) = (request.id.clone(), request.uncounted);
    let handled = reconciliation.status.restart_requests.get_or_insert_default();
    let (outcome, later) = (outcome.to_owned(), LaterFields::new());
    handled.push(HandledRestartRequest { id, outcome, uncounted, time, restart, later });
    while handled.len() > KEPT {
        let kept = last_uncounted(handled.iter());
        let limits_rate = |it: &HandledRestartRequest| is_uncounted_restart(it) && Some(it.time.0) == kept;
        handled.remove(usize::from(limits_rate(&handled[0])));
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
