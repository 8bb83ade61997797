//! How many Pods have their agent on the agent stream, in `status.agentStream`. People read it, and no rule decides by it.
//!
//! The numbers are written with other changes of the status. They are a reason to write only when agents have been missing for a
//! minute, when the number of those changes later, at most once a minute, and when all are connected again. Nobody looks at them while
//! the JobSet restarts: the agents of sidecars connect again.

use std::time::Duration;

use jobset_api::{AgentStreamStatus, ReplicatedJob, agent, conditions};
use jobset_store::pods::{JobPods, PodView};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;

use crate::reconciliation::Reconciliation;

/// How long agents may take to connect: after a change of the leader, and when a relay ends. Those that a leader does not know are
/// missing only after this time.
pub const RECONNECT_TIME: Duration = Duration::from_mins(1);
/// Most names of Pods in the status, which the API server sends to all agents without a connection.
const NAMED: usize = 3;

/// Counts the Pods whose agent is connected, and decides whether the status says so.
pub(super) fn report(reconciliation: &mut Reconciliation<'_>) {
    let jobset = reconciliation.observed.jobset;
    if !jobset.is_managed_here() || jobset.metadata.deletion_timestamp.is_some() {
        return;
    }
    let is_written = reconciliation.changes_status();
    if !has_agents(reconciliation) {
        reconciliation.misses_agents = Some(false);
        if is_written {
            reconciliation.status.agent_stream = None;
        }
        return;
    }
    if is_restarting(reconciliation) {
        return;
    }
    let counted = count(reconciliation);
    let misses_agents = counted.misses_agents();
    reconciliation.misses_agents = Some(misses_agents);
    // A leader knows nothing of agents that have not connected to it yet. Each that has connected is certain.
    let is_certain = !misses_agents || reconciliation.observed.agents.missing_for >= RECONNECT_TIME;
    let stored = reconciliation.status.agent_stream.as_ref();
    if is_certain && (is_written || is_news(stored, &counted, reconciliation.now)) {
        let later = stored.map(|stored| stored.later.clone()).unwrap_or_default();
        let last_update_time = Some(reconciliation.now.clone());
        let told = AgentStreamStatus { last_update_time, later, ..counted };
        reconciliation.status.agent_stream = Some(told).filter(|told| told.expected_pods > 0);
    }
}

/// Whether the JobSet has agents, now or when its Pods start, that can use the stream.
fn has_agents(reconciliation: &Reconciliation<'_>) -> bool {
    let has_pods = reconciliation.observed.jobset.spec.expected_pods() > 0;
    let is_active = has_pods && !reconciliation.is_suspended() && !reconciliation.status.is_finished();
    is_active && reconciliation.in_place() && reconciliation.groups().iter().any(knows_relay)
}

/// Whether the agents of this replicatedJob can use the stream.
fn knows_relay(group: &ReplicatedJob) -> bool {
    group.template.spec.template.spec.as_ref().is_some_and(agent::uses_relay)
}

fn is_restarting(reconciliation: &Reconciliation<'_>) -> bool {
    let is_recovering = reconciliation.true_condition(conditions::RESTARTING).is_some();
    reconciliation.status.epochs().is_closed() || is_recovering
}

/// The Pods that run and whose agent has reported, and those of them whose agent is connected.
fn count(reconciliation: &Reconciliation<'_>) -> AgentStreamStatus {
    let know_relay: Vec<bool> = reconciliation.groups().iter().map(knows_relay).collect();
    let running = reconciliation.current.iter().filter(|current| !current.is_over() && know_relay[current.group]);
    let pods = running.filter_map(|current| current.pods).flat_map(JobPods::all);
    let is_expected = |pod: &&PodView| pod.fills_its_slot() && pod.deleted_at.is_none() && pod.epoch.number().is_some();
    let (mut expected, mut missing) = (0, Vec::new());
    for pod in pods.filter(is_expected) {
        expected += 1;
        if !reconciliation.observed.agents.has(&pod.uid) {
            missing.push(pod.name.as_str());
        }
    }
    missing.sort_unstable();
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    AgentStreamStatus {
        connected_pods: number(expected - missing.len()),
        expected_pods: number(expected),
        missing_pods: missing.into_iter().take(NAMED).map(str::to_owned).collect(),
        ..AgentStreamStatus::default()
    }
}

/// Whether the numbers are worth a write of their own.
fn is_news(stored: Option<&AgentStreamStatus>, counted: &AgentStreamStatus, now: &Time) -> bool {
    let misses_agents = counted.misses_agents();
    let Some(stored) = stored else { return misses_agents };
    if stored.misses_agents() != misses_agents {
        return true;
    }
    let is_other = (stored.connected_pods, stored.expected_pods) != (counted.connected_pods, counted.expected_pods);
    misses_agents && is_other && !was_written_just_now(stored, now)
}

/// Whether the last write is less than a minute old. A time of the future says nothing: the clock of another leader was ahead.
fn was_written_just_now(stored: &AgentStreamStatus, now: &Time) -> bool {
    let age = stored.last_update_time.as_ref().map(|Time(written)| now.0.duration_since(*written));
    age.is_some_and(|age| !age.is_negative() && age < SignedDuration::try_from(RECONNECT_TIME).unwrap_or_default())
}
