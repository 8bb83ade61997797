//! In-place restart: the Pods that the barrier waits for.

use jobset_api::agent::{DEFAULT_STOP_GRACE_SECONDS, STOP_GRACE_SECONDS};
use jobset_api::{conditions, labels};
use jobset_objects::{PartialContainer, PartialPod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::crash_loop;
use super::problem::{ProblemKind, names};
use super::reported::named;
use super::stream;
use super::{Facts, Finding};
use crate::status::{Epochs, JobSetTree, PodBarrier};

/// Reason of the finding about Pods that have not reported.
const WAITING: &str = "WaitingAtBarrier";

pub(super) fn blocked(facts: &Facts) -> Vec<Finding> {
    let advice = format!(
        "See the logs of the init containers and the agent of the named Pod, `{}`, and the findings below. If more Pods of \
         one index fail like this than may restart, the JobSet fails.",
        facts.kubectl("logs POD -c CONTAINER")
    );
    let what = "A Pod keeps failing before it reaches the barrier, and the group waits for it.";
    named(facts, conditions::BARRIER_BLOCKED, "BarrierBlocked", what, &advice)
}

pub(super) fn not_running(facts: &Facts) -> Vec<Finding> {
    let advice = format!("See the events of what the message names: `{}`.", facts.kubectl("describe pod POD"));
    let what = "Workers have not started.";
    named(facts, conditions::WORKERS_NOT_RUNNING, "WorkersNotRunning", what, &advice)
}

/// The barrier is closed: lists the Pods that have not reported.
pub(super) fn waiting(facts: &Facts, tree: &JobSetTree) -> Vec<Finding> {
    if let Some(settling) = settling(facts) {
        return vec![settling];
    }
    let (Some(epochs), Some(barrier)) = (tree.epochs, &tree.barrier) else { return Vec::new() };
    let alive = || facts.pods.iter().filter(|pod| !pod.has_ended());
    let at = |wanted: PodBarrier| {
        let pods = alive().filter(|pod| PodBarrier::of_pod(pod, epochs) == wanted);
        pods.map(|pod| pod.name_any()).collect::<Vec<_>>()
    };
    if barrier.lifted {
        return not_observed(&at(PodBarrier::Waiting), epochs);
    }
    let mut details: Vec<String> =
        facts.condition(conditions::BARRIER_WAITING).map(|it| it.message.clone()).into_iter().collect();
    for (barrier, what) in [
        (PodBarrier::Unreported, "not reported yet"),
        (PodBarrier::Restarting, "not restarted yet"),
        (PodBarrier::Lifted, "not restarted yet"),
        (PodBarrier::Invalid, "an invalid epoch"),
    ] {
        let pods = at(barrier);
        if !pods.is_empty() {
            details.push(format!("{what}: {}", names(&pods)));
        }
    }
    let stopping: Vec<String> =
        alive().filter(|pod| is_stopping(pod, epochs, facts.now)).map(|pod| pod.name_any()).collect();
    if !stopping.is_empty() {
        details.push(format!("have sent SIGTERM to their workers, which have not ended: {}", names(&stopping)));
    }
    let missing = barrier.expected - i64::try_from(alive().count()).unwrap_or(i64::MAX);
    if missing > 0 {
        details.push(format!("not created yet: {missing}"));
    }
    details.extend(stream::behind(epochs));
    let left = barrier.expected - i64::try_from(barrier.reported).unwrap_or(i64::MAX);
    if left <= 0 && crash_loop::waits_until(facts).is_some() {
        return Vec::new();
    }
    let what = format!("It waits at the barrier of epoch {} for {left} of {} Pods.", barrier.epoch, barrier.expected);
    let advice = match left {
        ..=0 => {
            "All Pods have reported, so the controller lifts the barrier at once. If it does not, check that it runs."
                .to_owned()
        }
        _ if i64::try_from(stopping.len()) == Ok(left) => format!(
            "Wait. A worker that ignores SIGTERM is killed after {} s (STOP_GRACE_SECONDS of its container).",
            stop_grace(facts)
        ),
        _ if at(PodBarrier::Unreported).is_empty() && missing <= 0 => format!(
            "Their containers restart, which takes some seconds. If the restart does not end, run `{}`.",
            facts.kubectl("describe pod POD")
        ),
        _ if !facts.has_silent_agents() => format!(
            "Findings above, if any, say why these Pods are late. Events of the Jobs say more: `{}`.",
            facts.kubectl(&format!("describe jobs -l {}={}", labels::JOBSET_NAME, facts.jobset.name_any()))
        ),
        _ => format!(
            "The findings above say why these Pods are late. For a Pod that runs but does not report, run `{}`; its \
             ServiceAccount needs the ClusterRole jobset-agent.",
            facts.kubectl("logs POD -c jobset-agent")
        ),
    };
    vec![Finding::new(WAITING, what, advice).with(details)]
}

/// Whether this is the reason of a finding that each restart has for some seconds.
pub(super) fn is_of_every_restart(reason: &str) -> bool {
    let of_pods = [ProblemKind::PodFailed, ProblemKind::Terminating, ProblemKind::Starting];
    reason == WAITING || of_pods.iter().any(|kind| format!("{kind:?}") == reason)
}

/// Whether the agent of a Pod supervises a worker that it has told to stop, and that runs on. The annotation of one whose worker has ended
/// may follow later.
fn is_stopping(pod: &PartialPod, epochs: Epochs, now: Timestamp) -> bool {
    let is_shown = epochs.lag.is_none_or(|lag| epochs.since.is_some_and(|since| since.duration_until(now) > lag));
    let has_sidecar = pod.spec.init_containers.iter().any(PartialContainer::is_sidecar);
    let runs = pod.status.container_statuses.iter().any(|status| status.state.running.is_some());
    is_shown && !has_sidecar && runs && PodBarrier::of_pod(pod, epochs) == PodBarrier::Restarting
}

/// How long a supervisor lets its worker end, in seconds: the longest of the JobSet.
fn stop_grace(facts: &Facts) -> f64 {
    let pods = facts.jobset.spec.replicated_jobs.iter().filter_map(|it| it.template.spec.template.spec.as_ref());
    let variables = pods.flat_map(|pod| &pod.containers).flat_map(|container| container.env.iter().flatten());
    let set = variables.filter(|variable| variable.name == STOP_GRACE_SECONDS);
    let longest = set.filter_map(|variable| variable.value.as_deref()?.parse().ok()).reduce(f64::max);
    longest.unwrap_or(DEFAULT_STOP_GRACE_SECONDS.into())
}

/// The next epoch waits until names have settled, and for nothing else.
fn settling(facts: &Facts) -> Option<Finding> {
    let condition = facts.condition(conditions::BARRIER_WAITING).filter(|it| it.reason == conditions::NAMES_SETTLE)?;
    let what = "The next epoch waits until DNS has the new addresses of Pods.";
    let advice = format!(
        "The controller begins it then. The annotation {} of the JobSet, or the controller's flag --settle-names, says how long an \
         address has to be known.",
        labels::SETTLE_NAMES
    );
    Some(Finding::new(conditions::NAMES_SETTLE, what, advice).with(vec![condition.message.clone()]))
}

/// Pods that report the next epoch while the barrier is lifted: the controller has not begun the restart.
fn not_observed(pods: &[String], epochs: Epochs) -> Vec<Finding> {
    let (who, has, waits) = match pods {
        [] => return Vec::new(),
        [pod] => (format!("Pod {pod}"), "has", "waits"),
        pods => (format!("{} Pods", pods.len()), "have", "wait"),
    };
    let epoch = epochs.next();
    let what = format!("{who} {has} reported epoch {epoch} and {waits}, but the controller has not begun a restart.");
    let advice = "The controller begins it within a second. If it does not, see its logs: \
                  `kubectl logs -A -l app.kubernetes.io/name=jobset-controller`.";
    let details = if pods.len() > 1 { vec![names(pods)] } else { Vec::new() };
    vec![Finding::new("ReportNotObserved", what, advice).with(details)]
}

/// The group restarts: the cause.
pub(super) fn restarting(facts: &Facts) -> Vec<Finding> {
    let Some(condition) = facts.condition(conditions::RESTARTING) else { return Vec::new() };
    let advice = format!("`{}` shows the phases of the restart.", facts.restarts_command());
    vec![Finding::new("Restarting", "The group restarts.", advice).with(vec![condition.message.clone()])]
}
