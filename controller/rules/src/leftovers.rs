//! Names the Jobs and Pods of an earlier attempt that do not go, and what keeps them. The Jobs of this attempt wait for them: their
//! names are taken, or restartStrategy BlockingRecreate wants all of them gone.

use std::collections::HashSet;

use jobset_api::{RestartStrategy, conditions, event};
use jobset_store::JobView;
use jobset_store::pods::{JobPods, PodView};
use k8s_openapi::jiff::SignedDuration;

use crate::barrier::begin_of_message;
use crate::reconciliation::{Reconciliation, by_name, first_few};

/// After this time, a Pod that is being deleted is late. The usual grace of 30 s is over.
const LATE: SignedDuration = SignedDuration::from_secs(45);

/// Sets the condition RecreationBlocked, and refreshes its message after 1, 2, 4 ... minutes.
pub(super) fn report(reconciliation: &mut Reconciliation<'_>) {
    if !may_wait(reconciliation) {
        return;
    }
    let pods = leftover_pods(reconciliation);
    let jobs: Vec<(&str, &JobView)> = reconciliation.previous.iter().filter(|(_, job)| job.deleting).copied().collect();
    if pods.is_empty() && jobs.is_empty() {
        let message = "no Job or Pod of an earlier attempt is left";
        reconciliation.clear_condition(conditions::RECREATION_BLOCKED, conditions::EARLIER_ATTEMPT_GONE, message);
        return;
    }
    let restarting = reconciliation.true_condition(conditions::RESTARTING).map(|it| it.last_transition_time.0);
    let Some(since) = pods.iter().filter_map(|pod| pod.deleted_at).min().or(restarting) else { return };
    let words = |age| format!("{age} after their deletion,");
    let Some(begin) = begin_of_message(reconciliation, conditions::RECREATION_BLOCKED, since, &[LATE], None, words)
    else {
        return;
    };
    let is_new = reconciliation.true_condition(conditions::RECREATION_BLOCKED).is_none();
    // A Job goes after its Pods, unless somebody else keeps it.
    let jobs = jobs.iter().filter(|(_, job)| pods.is_empty() || job.held_by.is_some());
    let jobs = jobs.map(|(name, job)| format!("Job {name}{}", kept(job.held_by.as_deref())));
    let left: Vec<String> = pods.iter().map(|pod| describe(pod)).chain(jobs).collect();
    let message = format!("{begin} these of an earlier attempt are left, and Jobs wait for them: {}", first_few(&left));
    reconciliation.set_condition(conditions::RECREATION_BLOCKED, conditions::EARLIER_ATTEMPT_LEFT, &message);
    if is_new {
        reconciliation.warn(event::RECREATION_BLOCKED, message);
    }
}

/// Whether Jobs may wait for an earlier attempt. Most plans end here, before they look at each Job.
fn may_wait(reconciliation: &Reconciliation<'_>) -> bool {
    let is_true = |condition| reconciliation.true_condition(condition).is_some();
    let strategy = reconciliation.observed.jobset.spec.restart_strategy();
    !reconciliation.previous.is_empty()
        || is_true(conditions::RECREATION_BLOCKED)
        || strategy == RestartStrategy::BlockingRecreate && is_true(conditions::RESTARTING)
}

/// The Pods of Jobs of an earlier attempt, in the order of their names. Pods of foreign Jobs hold up nothing.
fn leftover_pods<'a>(reconciliation: &Reconciliation<'a>) -> Vec<&'a PodView> {
    let observed = reconciliation.observed;
    let current: HashSet<&str> = reconciliation.current.iter().map(|current| current.job.uid.as_str()).collect();
    let foreign: HashSet<&str> = observed.foreign_jobs().map(|(_, job)| job.uid.as_str()).collect();
    let is_of_earlier = |uid: &str| !current.contains(uid) && !foreign.contains(uid);
    let blocks = !reconciliation.previous.is_empty()
        || observed.jobset.spec.restart_strategy() == RestartStrategy::BlockingRecreate;
    let pods = observed
        .pods()
        .jobs()
        .filter(|_| blocks)
        .filter(|(uid, _)| is_of_earlier(uid))
        .flat_map(|(_, pods)| JobPods::all(pods));
    by_name(pods.filter(|pod| pod.deleted_at.is_some()))
}

/// The Pod, its node, and the finalizer that keeps it.
fn describe(pod: &PodView) -> String {
    let node = pod.node.as_deref().map(|node| format!(" on node {node}")).unwrap_or_default();
    format!("Pod {}{node}{}", pod.name, kept(pod.held_by.as_deref()))
}

fn kept(by: Option<&str>) -> String {
    by.map(|finalizer| format!(", which the finalizer {finalizer} keeps")).unwrap_or_default()
}
