//! Reports workers that do not run: in place although the barrier was lifted, and anywhere although their Pods were created some time
//! ago; with what their Pods wait for.

use jobset_api::{conditions, event};
use jobset_store::pods::{JobPods, PodView};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::barrier::begin_of_message;
use crate::reconciliation::{Reconciliation, by_name, first_few, name_few};
use crate::why;

/// After this time, a worker that was let through the barrier and does not run is late. Its Event comes within 30 s of the lift, also
/// where the controller is busy.
const LATE: SignedDuration = SignedDuration::from_secs(25);
/// After this time, a Pod whose workers do not run is late, and so is a Job without a Pod: within a minute the condition names them.
const LATE_AT_START: SignedDuration = SignedDuration::from_secs(45);

/// Workers that do not run.
#[derive(Clone, Copy, Debug)]
enum Waiter {
    /// Those of Pods in the epoch that runs.
    Lifted,
    /// Those of Pods in which one of them has never run.
    Created,
    /// Those of Jobs that have no Pod.
    WithoutPod,
}

impl Waiter {
    /// After which time that is late, and after what.
    fn late(self) -> (SignedDuration, &'static str) {
        match self {
            Self::Lifted => (LATE, "the barrier was lifted"),
            Self::Created => (LATE_AT_START, "they were created"),
            Self::WithoutPod => (LATE_AT_START, "they were started"),
        }
    }

    /// Since when the first of them does not run. `None` if all do.
    fn since(self, reconciliation: &Reconciliation<'_>) -> Option<Timestamp> {
        match self {
            Self::Lifted => {
                let synced = reconciliation.status.synced_epoch;
                let waits = reconciliation.running_pods().any(|pods| pods.not_started_in(synced).next().is_some());
                reconciliation.status.epoch_transition_time.as_ref().map(|time| time.0).filter(|_| waits)
            }
            Self::Created if reconciliation.in_place() => newcomers(reconciliation).map(|pod| pod.created).min(),
            Self::Created => reconciliation.running_pods().filter_map(JobPods::idle_since).min(),
            Self::WithoutPod => without_pod(reconciliation).map(|(_, since)| since).min(),
        }
    }
}

/// Sets the condition WorkersNotRunning, and refreshes its message after 1, 2, 4 ... minutes.
///
/// While a group restarts in place, or waits for its first lift, the condition stays as it is: [`super::returns`] reads it, and
/// BarrierWaiting has what the group waits for.
pub(super) fn report(reconciliation: &mut Reconciliation<'_>) {
    if reconciliation.is_suspended() {
        let message = "jobset is suspended";
        reconciliation.clear_condition(conditions::WORKERS_NOT_RUNNING, conditions::WORKERS_RUN, message);
        return;
    }
    let waiters = if reconciliation.in_place() {
        let epochs = reconciliation.status.epochs();
        if epochs != reconciliation.observed.stored_epochs() || epochs.is_closed() {
            return;
        }
        [Waiter::Lifted, Waiter::Created]
    } else {
        [Waiter::Created, Waiter::WithoutPod]
    };
    let waits = waiters.map(|waiter| Some((waiter, waiter.since(reconciliation)?)));
    if waits.iter().all(Option::is_none) {
        let message = "the workers of all Pods have started";
        reconciliation.clear_condition(conditions::WORKERS_NOT_RUNNING, conditions::WORKERS_RUN, message);
        return;
    }
    let late = waits.into_iter().flatten().find(|(waiter, since)| {
        let (late, _) = waiter.late();
        reconciliation.is_due(since.saturating_add(late).unwrap_or(*since))
    });
    if let Some((waiter, since)) = late {
        name(reconciliation, waiter, since);
    }
}

fn name(reconciliation: &mut Reconciliation<'_>, waiter: Waiter, since: Timestamp) {
    let (late, event) = waiter.late();
    let words = |age| format!("{age} after {event},");
    let adds = why::warning(reconciliation, since, |pod| pod.workers == 0 || pod.unstarted);
    let condition = conditions::WORKERS_NOT_RUNNING;
    let Some(begin) = begin_of_message(reconciliation, condition, since, &[late], adds, words) else { return };
    let stored_reason = reconciliation.true_condition(condition).map(|it| it.reason.clone());
    let pods = match waiter {
        Waiter::Lifted => {
            let synced = reconciliation.status.synced_epoch;
            by_name(reconciliation.running_pods().flat_map(|pods| pods.not_started_in(synced)))
        }
        Waiter::Created if reconciliation.in_place() => by_name(newcomers(reconciliation)),
        Waiter::Created => by_name(reconciliation.running_pods().flat_map(JobPods::idle)),
        Waiter::WithoutPod => Vec::new(),
    };
    let (reason, message) = if pods.is_empty() {
        let jobs: Vec<&str> = without_pod(reconciliation).map(|(job, _)| job).collect();
        (conditions::PODS_MISSING, format!("{begin} these Jobs have no Pod: {}", first_few(&jobs)))
    } else {
        if stored_reason.is_none() && why::awaits_answer(reconciliation, &pods, since, late) {
            return;
        }
        let why = why::of_first(reconciliation, &pods, since).map(|why| format!("; {why}")).unwrap_or_default();
        let message = format!("{begin} the workers of these Pods do not run: {}{why}", name_few(&pods));
        (conditions::CONTAINERS_NOT_STARTED, message)
    };
    reconciliation.set_condition(condition, reason, &message);
    if stored_reason.as_deref() != Some(reason) {
        reconciliation.warn(event::WORKERS_NOT_RUNNING, message);
    }
}

/// In place, the Pods that have not reached the barrier beside workers that run: those that join the group, or replace lost ones.
fn newcomers<'a>(reconciliation: &Reconciliation<'a>) -> impl Iterator<Item = &'a PodView> {
    reconciliation.running_pods().flat_map(JobPods::idle).filter(|pod| pod.epoch.number().is_none())
}

/// Jobs that were started or resumed, and have no Pod, and since when. What is refused to the Job controller is in the condition
/// ChildRefused.
fn without_pod<'a>(reconciliation: &Reconciliation<'a>) -> impl Iterator<Item = (&'a str, Timestamp)> {
    reconciliation.current.iter().filter_map(|current| {
        let job = current.job;
        let is_empty = current.pods.is_none_or(JobPods::is_empty) && job.active == 0 && job.done_count() == 0;
        let runs = !current.is_over() && !job.suspended && !job.failing && job.pods > 0;
        let since = job.started.or(job.created)?;
        (is_empty && runs).then_some((current.name, since))
    })
}
