//! Requests of agents, from the API server's audit log. Pure.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use anyhow::{Context, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::Deserialize;

/// How the User-Agent of an agent begins.
const AGENT: &str = "jobset-agent/";
/// Where the API server notes the Pod that a token is bound to.
const POD_OF_TOKEN: &str = "authentication.kubernetes.io/pod-name";

/// One request of an agent. Times are seconds since 1970, by the API server's clock.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AgentRequest {
    /// Name of the Pod that the agent's token is bound to.
    pub(super) pod: String,
    /// `watch` or `patch`, or any other.
    pub(super) verb: String,
    /// When it arrived.
    pub(super) received: f64,
    /// When its answer ended; that of a watch ends with the agent.
    pub(super) ended: Option<f64>,
}

/// The part of an audit event that is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditEvent {
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: String,
    verb: String,
    #[serde(default)]
    user_agent: String,
    user: AuditUser,
    #[serde(default)]
    object_ref: AuditObject,
    request_received_timestamp: MicroTime,
    stage_timestamp: MicroTime,
}

#[derive(Deserialize)]
struct AuditUser {
    #[serde(default)]
    extra: HashMap<String, Vec<String>>,
}

#[derive(Default, Deserialize)]
struct AuditObject {
    #[serde(default)]
    namespace: String,
}

/// The requests of the agents of a namespace, in the order in which they arrived.
pub(super) fn of_agents(log: &str, namespace: &str) -> Result<Vec<AgentRequest>> {
    let mut requests: BTreeMap<String, AgentRequest> = BTreeMap::new();
    // Most lines are not about agents, and the last one may be half written.
    for line in log.split_inclusive('\n').filter(|line| line.ends_with('\n') && line.contains(AGENT)) {
        let event: AuditEvent = serde_json::from_str(line).with_context(|| format!("not an audit event: {line}"))?;
        if !event.user_agent.starts_with(AGENT) || event.object_ref.namespace != namespace {
            continue;
        }
        let pod = event.user.extra.get(POD_OF_TOKEN).and_then(|names| names.first()).cloned().unwrap_or_default();
        let request = requests.entry(event.audit_id).or_insert_with(|| AgentRequest {
            pod,
            verb: event.verb,
            received: seconds(&event.request_received_timestamp),
            ended: None,
        });
        // A watch has an event when its answer begins, too.
        if event.stage == "ResponseComplete" {
            request.ended = Some(seconds(&event.stage_timestamp));
        }
    }
    let mut requests: Vec<AgentRequest> = requests.into_values().collect();
    requests.sort_by(|a, b| a.received.total_cmp(&b.received));
    Ok(requests)
}

/// The most requests that one agent made in a time.
pub(super) fn most_of_an_agent(requests: &[AgentRequest], time: &Range<f64>) -> usize {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for request in requests.iter().filter(|request| time.contains(&request.received)) {
        *counts.entry(&request.pod).or_default() += 1;
    }
    counts.into_values().max().unwrap_or(0)
}

fn seconds(time: &MicroTime) -> f64 {
    time.0.as_duration().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn event(id: &str, stage: &str, verb: &str, pod: &str, second: u32) -> Value {
        json!({
            "auditID": id, "stage": stage, "verb": verb, "userAgent": "jobset-agent/0.1.0",
            "user": {"username": "system:serviceaccount:ns:default", "extra": {"authentication.kubernetes.io/pod-name": [pod]}},
            "objectRef": {"resource": "pods", "namespace": "ns"},
            "requestReceivedTimestamp": "1970-01-01T00:00:01.500000Z",
            "stageTimestamp": format!("1970-01-01T00:00:{second:02}.250000Z"),
        })
    }

    fn log(events: &[Value]) -> String {
        events.iter().map(|event| event.to_string() + "\n").collect()
    }

    #[test]
    fn a_watch_is_one_request_from_its_first_event_to_its_last() {
        let started = event("1", "ResponseStarted", "watch", "a", 2);
        let open = AgentRequest { pod: "a".into(), verb: "watch".into(), received: 1.5, ended: None };
        assert_eq!(of_agents(&log(std::slice::from_ref(&started)), "ns").unwrap(), vec![open.clone()]);
        let ended = event("1", "ResponseComplete", "watch", "a", 9);
        assert_eq!(of_agents(&log(&[started, ended]), "ns").unwrap(), [AgentRequest { ended: Some(9.25), ..open }]);
    }

    #[rstest]
    #[case::of_another_namespace("/objectRef/namespace", json!("other"))]
    #[case::of_other_client("/userAgent", json!("kubelet for jobset-agent/0.1.0"))]
    fn other_clients_are_ignored(#[case] field: &str, #[case] value: Value) {
        let mut other = event("1", "ResponseComplete", "patch", "a", 2);
        *other.pointer_mut(field).unwrap() = value;
        assert_eq!(of_agents(&log(&[other]), "ns").unwrap(), []);
    }

    #[test]
    fn requests_are_ordered_by_arrival() {
        let event = |id: &str, pod: &str, received: &str| {
            let mut event = event(id, "ResponseComplete", "patch", pod, 9);
            event["requestReceivedTimestamp"] = json!(received);
            event
        };
        let events = [
            event("1", "a", "1970-01-01T00:00:03.000000Z"),
            event("2", "a", "1970-01-01T00:00:01.000000Z"),
            event("3", "b", "1970-01-01T00:00:02.000000Z"),
        ];
        let requests = of_agents(&log(&events), "ns").unwrap();
        let seen: Vec<_> = requests.iter().map(|request| (request.pod.as_str(), request.received)).collect();
        assert_eq!(seen, [("a", 1.0), ("b", 2.0), ("a", 3.0)]);
    }

    #[test]
    fn half_written_line_is_ignored() {
        let whole = log(&[event("1", "ResponseComplete", "patch", "a", 2)]);
        assert_eq!(of_agents(&whole[..whole.len() - 3], "ns").unwrap(), []);
        assert!(of_agents("jobset-agent/ {\n", "ns").is_err());
        assert_eq!(of_agents("{}\n", "ns").unwrap(), [], "not about agents");
    }

    #[test]
    fn busiest_agent_counts() {
        let request =
            |pod: &str, received| AgentRequest { pod: pod.into(), verb: "patch".into(), received, ended: None };
        let requests = [request("a", 1.0), request("b", 1.0), request("b", 2.0), request("b", 3.0)];
        assert_eq!(most_of_an_agent(&requests, &(1.0..3.0)), 2);
        assert_eq!(most_of_an_agent(&requests, &(4.0..5.0)), 0);
    }
}
