//! Requests of agents, from the API server's audit log.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use jobset_harness::cluster::Cluster;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// How the User-Agent of an agent begins.
const AGENT: &str = "jobset-agent/";
/// Where the API server notes the Pod that a token is bound to.
const POD_OF_TOKEN: &str = "authentication.kubernetes.io/pod-name";

/// One request of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AgentRequest {
    /// Name of the Pod that the agent's token is bound to.
    pub(super) pod: String,
    /// When it arrived, in seconds since 1970, by the API server's clock.
    pub(super) received: f64,
}

/// The requests of the agents of a namespace so far, in the order of their answers.
pub(super) fn of_agents(cluster: &Cluster, namespace: &str) -> Result<Vec<AgentRequest>> {
    let log = std::fs::read_to_string(cluster.dir().join("logs/audit.log")).context("cannot read the audit log")?;
    parse(&log, namespace)
}

/// The most requests that one agent made from a time on.
pub(super) fn most_of_an_agent(requests: &[AgentRequest], from: f64) -> usize {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for request in requests.iter().filter(|request| request.received >= from) {
        *counts.entry(&request.pod).or_default() += 1;
    }
    counts.into_values().max().unwrap_or(0)
}

fn parse(log: &str, namespace: &str) -> Result<Vec<AgentRequest>> {
    let (mut ids, mut requests) = (HashSet::new(), Vec::new());
    // Most lines are not about agents, and the last one may be half written.
    for line in log.split_inclusive('\n').filter(|line| line.ends_with('\n') && line.contains(AGENT)) {
        let event: Value = serde_json::from_str(line).with_context(|| format!("not an audit event: {line}"))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_of_agent = text(&event["userAgent"]).starts_with(AGENT) && event["objectRef"]["namespace"] == namespace;
        // A watch has two events: its answer begins, and ends.
        if is_of_agent && ids.insert(text(&event["auditID"])) {
            requests.push(AgentRequest {
                pod: text(&event["user"]["extra"][POD_OF_TOKEN][0]),
                received: seconds(&text(&event["requestReceivedTimestamp"]))?,
            });
        }
    }
    Ok(requests)
}

fn seconds(time: &str) -> Result<f64> {
    let time: Timestamp = time.parse().with_context(|| format!("not a time: {time}"))?;
    Ok(time.as_duration().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn event(id: &str, stage: &str, second: u32) -> Value {
        json!({
            "auditID": id, "stage": stage, "userAgent": "jobset-agent/0.1.0",
            "user": {"username": "system:serviceaccount:ns:default", "extra": {"authentication.kubernetes.io/pod-name": ["a"]}},
            "objectRef": {"resource": "pods", "namespace": "ns"},
            "requestReceivedTimestamp": format!("1970-01-01T00:00:{second:02}.500000Z"),
        })
    }

    fn request(pod: &str, received: f64) -> AgentRequest {
        AgentRequest { pod: pod.into(), received }
    }

    fn log(events: &[Value]) -> String {
        events.iter().map(|event| event.to_string() + "\n").collect()
    }

    #[test]
    fn watch_with_two_events_is_one_request() {
        let events =
            [event("1", "ResponseStarted", 2), event("2", "ResponseComplete", 3), event("1", "ResponseComplete", 2)];
        assert_eq!(parse(&log(&events), "ns").unwrap(), [request("a", 2.5), request("a", 3.5)]);
    }

    #[rstest]
    #[case::of_another_namespace("/objectRef/namespace", json!("other"))]
    #[case::of_other_client("/userAgent", json!("kubelet for jobset-agent/0.1.0"))]
    fn other_clients_are_ignored(#[case] field: &str, #[case] value: Value) {
        let mut other = event("1", "ResponseComplete", 2);
        *other.pointer_mut(field).unwrap() = value;
        assert_eq!(parse(&log(&[other]), "ns").unwrap(), []);
    }

    #[test]
    fn half_written_line_is_ignored() {
        let whole = log(&[event("1", "ResponseComplete", 2)]);
        assert_eq!(parse(&whole[..whole.len() - 3], "ns").unwrap(), []);
        assert!(parse("jobset-agent/ {\n", "ns").is_err());
        assert_eq!(parse("{}\n", "ns").unwrap(), [], "not about agents");
    }

    #[test]
    fn busiest_agent_counts() {
        let requests = [request("a", 1.0), request("b", 1.0), request("b", 2.0), request("b", 3.0)];
        assert_eq!([1.0, 2.0, 4.0].map(|from| most_of_an_agent(&requests, from)), [3, 2, 0]);
    }
}
