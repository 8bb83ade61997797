//! The agent stream: agents report over it, and their annotations follow later.

use jobset_api::agent::{RELAY_CONFIG_MAP, asks_dns_of_node, uses_relay};
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Facts, Finding};
use crate::output::age;
use crate::status::Epochs;

/// How old the epochs of Pods may be, if their template has the stream. Whether a relay serves them is known in its log alone.
pub(super) fn behind(epochs: Epochs) -> Option<String> {
    let seconds = epochs.lag?.as_secs();
    Some(format!(
        "agents report over the stream if a relay serves them: the epochs shown here may be {seconds} s old, and older while \
         restarts follow each other"
    ))
}

/// A remark: the agents cannot use the stream.
pub(super) fn unavailable(facts: &Facts) -> Vec<Finding> {
    if facts.relay_ca != Some(false) {
        return Vec::new();
    }
    let what = format!(
        "Its agents were injected with the agent stream and cannot use it: the namespace has no ConfigMap {RELAY_CONFIG_MAP}. \
         They report through the API server instead."
    );
    let advice = "The controller creates the ConfigMap if its feature gate AgentStream is on (value stream.enabled of the chart). \
                  If it is, see its logs: `kubectl logs -A -l app.kubernetes.io/name=jobset-controller`.";
    vec![Finding::new("StreamUnavailable", what, advice)]
}

/// A remark: the DNS of their node, which serves some Pods, does not know the relays.
pub(super) fn not_found(facts: &Facts) -> Vec<Finding> {
    let is_affected = |pod: &PodSpec| uses_relay(pod) && asks_dns_of_node(pod);
    let groups = facts.jobset.spec.replicated_jobs.iter();
    let mut affected = groups.filter(|it| it.template.spec.template.spec.as_ref().is_some_and(is_affected));
    let Some(group) = affected.next() else { return Vec::new() };
    let what = format!(
        "The DNS of the node serves the Pods of replicatedJob {}, and does not know the relays. Their agents report through the API \
         server instead, so restarts of large groups take longer.",
        group.name
    );
    let advice = "With hostNetwork, set dnsPolicy: ClusterFirstWithHostNet in the Pod template of the next JobSet.";
    vec![Finding::new("RelaysNotFound", what, advice)]
}

/// A remark: the leader knows of no connection of some agents. What keeps them from the stream is not known here.
pub(super) fn missing(facts: &Facts) -> Vec<Finding> {
    let agents = facts.jobset.status.as_ref().and_then(|status| status.agent_stream.as_ref());
    let Some(agents) = agents.filter(|agents| agents.misses_agents()) else { return Vec::new() };
    let missing = agents.expected_pods.saturating_sub(agents.connected_pods);
    let written = agents.last_update_time.as_ref().map(|Time(written)| age(Some(*written), facts.now));
    let what = format!(
        "The agents of {missing} of {} Pods are not on the agent stream, as the controller wrote{}. They report through the API server \
         instead, so restarts of large groups take longer.",
        agents.expected_pods,
        written.map(|written| format!(" {written} ago")).unwrap_or_default()
    );
    let advice = "See that relays run (`kubectl get pods -A -l app.kubernetes.io/name=jobset-relay`), that no NetworkPolicy or firewall \
                  keeps these Pods from relays and DNS, that Pods with hostNetwork have dnsPolicy: ClusterFirstWithHostNet, and that the \
                  namespace has no more agents than a relay serves (value stream.relay.maxConnectionsPerNamespace of the chart).";
    let mut names = agents.missing_pods.join(", ");
    let more = usize::try_from(missing).unwrap_or(0).saturating_sub(agents.missing_pods.len());
    if more > 0 && !names.is_empty() {
        names = format!("{names} and {more} more");
    }
    let details = Some(names).filter(|names| !names.is_empty());
    vec![Finding::new("AgentsNotConnected", what, advice).with(details.into_iter().collect())]
}
