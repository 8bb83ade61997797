//! NetworkPolicies as rules of nftables: the plugins of a test cluster enforce none.
//!
//! The rules apply to what a Pod sends to Pods, nodes and the API server, after kube-proxy has replaced the addresses of Services. What a
//! node sends to Pods is always allowed, as probes of kubelets. A packet that opens or continues a connection is compared each time, so
//! that a policy that comes later ends connections, too; answers pass.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

pub(super) const TABLE: &str = "jobset_policies";

/// What the policies of a cluster apply to.
#[derive(Debug, Default)]
pub(super) struct PolicyInputs {
    pub(super) policies: Vec<NetworkPolicy>,
    pub(super) pods: Vec<Pod>,
    pub(super) namespaces: Vec<Namespace>,
}

/// Which way a rule of a policy looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::Egress => "Egress",
        }
    }

    /// The field of the Pod's own address, and of its peer's.
    fn fields(self) -> (&'static str, &'static str) {
        match self {
            Self::Ingress => ("daddr", "saddr"),
            Self::Egress => ("saddr", "daddr"),
        }
    }

    fn rules(self, policy: &NetworkPolicy) -> Vec<(&[NetworkPolicyPeer], &[NetworkPolicyPort])> {
        let Some(spec) = &policy.spec else { return Vec::new() };
        match self {
            Self::Ingress => {
                let rules = spec.ingress.iter().flatten();
                rules.map(|rule| (slice(rule.from.as_deref()), slice(rule.ports.as_deref()))).collect()
            }
            Self::Egress => {
                let rules = spec.egress.iter().flatten();
                rules.map(|rule| (slice(rule.to.as_deref()), slice(rule.ports.as_deref()))).collect()
            }
        }
    }

    /// Whether a policy limits this direction. Without `policyTypes`, it limits ingress, and egress if it has rules for that.
    fn is_limited_by(self, policy: &NetworkPolicy) -> bool {
        let Some(spec) = &policy.spec else { return false };
        match &spec.policy_types {
            Some(types) => types.iter().any(|of| of == self.name()),
            None => self == Self::Ingress || spec.egress.is_some(),
        }
    }
}

fn slice<T>(list: Option<&[T]>) -> &[T] {
    list.unwrap_or_default()
}

impl PolicyInputs {
    /// A script for nft that replaces the rules of before at once.
    pub(super) fn script(&self) -> Result<String> {
        let mut chains = String::new();
        let mut jumps = String::new();
        for (number, (pod, address)) in self.pods_with_addresses().enumerate() {
            for direction in [Direction::Egress, Direction::Ingress] {
                let Some(allowed) = self.allowed(pod, direction)? else { continue };
                let chain = format!("pod_{number}_{}", direction.name().to_lowercase());
                let (own, _) = direction.fields();
                write!(chains, "chain {chain} {{ ")?;
                for rule in allowed {
                    write!(chains, "{rule} return; ")?;
                }
                writeln!(chains, "drop; }}")?;
                writeln!(jumps, "ip {own} {address} jump {chain}")?;
            }
        }
        let base = |hook: &str| {
            format!("chain {hook} {{ type filter hook {hook} priority 0; ct direction reply accept\n{jumps}}}\n")
        };
        let (forward, input) = (base("forward"), base("input"));
        Ok(format!("add table ip {TABLE}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n{chains}{forward}{input}}}\n"))
    }

    /// The Pods that have a network of their own, and have not ended, with their addresses.
    fn pods_with_addresses(&self) -> impl Iterator<Item = (&Pod, &str)> {
        self.pods.iter().filter_map(|pod| {
            let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
            let ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
            let is_of_node = spec.host_network == Some(true);
            status.pod_ip.as_deref().filter(|_| !ended && !is_of_node).map(|address| (pod, address))
        })
    }

    /// What the policies allow a Pod, as conditions of nft; `None` if no policy limits it.
    fn allowed(&self, pod: &Pod, direction: Direction) -> Result<Option<Vec<String>>> {
        let mut allowed = None;
        for policy in &self.policies {
            let of_namespace = policy.namespace() == pod.namespace() && direction.is_limited_by(policy);
            let selector = policy.spec.as_ref().and_then(|spec| spec.pod_selector.as_ref());
            if !of_namespace || !matches(selector, pod.labels())? {
                continue;
            }
            let conditions: &mut Vec<String> = allowed.get_or_insert_default();
            for (peers, ports) in direction.rules(policy) {
                conditions.extend(self.conditions(pod, direction, peers, ports)?);
            }
        }
        Ok(allowed)
    }

    /// One rule of a policy: each peer with each port.
    fn conditions(
        &self,
        pod: &Pod,
        direction: Direction,
        peers: &[NetworkPolicyPeer],
        ports: &[NetworkPolicyPort],
    ) -> Result<Vec<String>> {
        let (_, field) = direction.fields();
        let mut conditions = Vec::new();
        // Without peers, all of them; each with the Pod whose named ports count.
        let mut addresses: Vec<(String, Option<&Pod>)> = Vec::new();
        if peers.is_empty() {
            addresses.push((String::new(), None));
        }
        for peer in peers {
            if let Some(block) = &peer.ip_block {
                let except: Vec<String> = slice(block.except.as_deref()).to_vec();
                let except = if except.is_empty() {
                    String::new()
                } else {
                    format!(" ip {field} != {{ {} }}", except.join(", "))
                };
                addresses.push((format!("ip {field} {}{except}", block.cidr), None));
                continue;
            }
            for (other, address) in self.pods_with_addresses() {
                if self.is_peer(peer, pod, other)? {
                    addresses.push((format!("ip {field} {address}"), Some(other)));
                }
            }
        }
        for (address, other) in addresses {
            let target = if direction == Direction::Ingress { Some(pod) } else { other };
            if ports.is_empty() {
                conditions.push(format!("{address} meta l4proto != 0").trim().to_owned());
            }
            for port in ports {
                if let Some(port) = condition_of_port(port, target) {
                    conditions.push(format!("{address} {port}").trim().to_owned());
                }
            }
        }
        Ok(conditions)
    }

    /// Whether another Pod is meant by a peer of a policy for this Pod.
    fn is_peer(&self, peer: &NetworkPolicyPeer, pod: &Pod, other: &Pod) -> Result<bool> {
        let of_other = other.namespace();
        let in_namespace = match &peer.namespace_selector {
            None => of_other == pod.namespace(),
            Some(selector) => {
                let found = self.namespaces.iter().find(|it| it.metadata.name == of_other);
                found.is_some_and(|it| matches(Some(selector), it.labels()).unwrap_or(false))
            }
        };
        Ok(in_namespace && matches(peer.pod_selector.as_ref(), other.labels())?)
    }
}

/// Whether a selector selects these labels. Without one, and if it is empty, it selects all.
fn matches(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> Result<bool> {
    let Some(selector) = selector else { return Ok(true) };
    let selector = Selector::try_from(selector.clone()).context("a selector is invalid")?;
    Ok(selector.matches(labels))
}

/// A port of a rule as nft has it; none if the Pod that it belongs to has no port of that name.
fn condition_of_port(port: &NetworkPolicyPort, target: Option<&Pod>) -> Option<String> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP").to_lowercase();
    let number = match &port.port {
        None => return Some(format!("meta l4proto {protocol}")),
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => {
            let mut declared =
                target?.spec.iter().flat_map(|spec| &spec.containers).flat_map(|it| it.ports.iter().flatten());
            declared.find(|port| port.name.as_deref() == Some(name))?.container_port
        }
    };
    let last = port.end_port.map(|last| format!("-{last}")).unwrap_or_default();
    Some(format!("{protocol} dport {number}{last}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn inputs(policies: &[Value]) -> PolicyInputs {
        let pod = |namespace: &str, name: &str, address: &str| {
            from_value(json!({
                "metadata": {"namespace": namespace, "name": name, "labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]},
                "status": {"phase": "Running", "podIP": address},
            }))
            .unwrap()
        };
        let namespace = |name: &str| from_value(json!({"metadata": {"name": name, "labels": {"name": name}}})).unwrap();
        let policy =
            |spec: &Value| from_value(json!({"metadata": {"namespace": "ml", "name": "p"}, "spec": spec})).unwrap();
        PolicyInputs {
            policies: policies.iter().map(policy).collect(),
            pods: vec![
                pod("ml", "worker", "10.0.0.1"),
                pod("ml", "other", "10.0.0.2"),
                pod("system", "relay", "10.0.0.3"),
            ],
            namespaces: vec![namespace("ml"), namespace("system")],
        }
    }

    fn allowed(policies: &[Value], direction: Direction) -> Option<Vec<String>> {
        let inputs = inputs(policies);
        inputs.allowed(&inputs.pods[0], direction).unwrap()
    }

    #[test]
    fn policy_limits_the_pods_and_directions_it_names() {
        let deny = |types: Value| json!({"podSelector": {}, "policyTypes": types});
        assert_eq!(allowed(&[], Direction::Egress), None);
        assert_eq!(allowed(&[deny(json!(["Ingress"]))], Direction::Egress), None);
        assert_eq!(allowed(&[deny(json!(["Egress"]))], Direction::Egress), Some(vec![]));
        let of_others = json!({"podSelector": {"matchLabels": {"app": "other"}}, "policyTypes": ["Egress"]});
        assert_eq!(allowed(&[of_others], Direction::Egress), None);
    }

    #[test]
    fn peers_and_ports_of_all_policies_are_allowed() {
        let relay = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [
            {"to": [{"namespaceSelector": {"matchLabels": {"name": "system"}}, "podSelector": {"matchLabels": {"app": "relay"}}}],
             "ports": [{"port": "web"}, {"protocol": "UDP", "port": 53}]}]});
        let others = json!({"podSelector": {"matchLabels": {"app": "worker"}}, "policyTypes": ["Egress"], "egress": [
            {"to": [{"podSelector": {"matchLabels": {"app": "other"}}}, {"ipBlock": {"cidr": "10.1.0.0/16", "except": ["10.1.1.0/24"]}}]},
            {"ports": [{"port": 6443}]}]});
        let wanted = [
            "ip daddr 10.0.0.3 tcp dport 8080",
            "ip daddr 10.0.0.3 udp dport 53",
            "ip daddr 10.0.0.2 meta l4proto != 0",
            "ip daddr 10.1.0.0/16 ip daddr != { 10.1.1.0/24 } meta l4proto != 0",
            "tcp dport 6443",
        ];
        assert_eq!(allowed(&[relay, others], Direction::Egress).unwrap(), wanted);
    }

    #[test]
    fn ingress_counts_the_named_ports_of_the_pod_itself() {
        let policy = json!({"podSelector": {}, "ingress": [{"ports": [{"port": "web"}, {"port": "none"}]}]});
        assert_eq!(allowed(&[policy], Direction::Ingress).unwrap(), ["tcp dport 8080"]);
    }

    #[test]
    fn script_drops_what_no_rule_returns() {
        let deny = json!({"podSelector": {"matchLabels": {"app": "worker"}}, "policyTypes": ["Egress"]});
        let script = inputs(&[deny]).script().unwrap();
        assert!(script.contains("chain pod_0_egress { drop; }"), "{script}");
        assert!(script.contains("ip saddr 10.0.0.1 jump pod_0_egress"), "{script}");
        assert!(!script.contains("10.0.0.2"), "{script}");
    }
}
