//! NetworkPolicies between the agents of a JobSet and the relays of the stream. Packets that a policy drops leave no trace elsewhere.

use std::collections::BTreeMap;

use jobset_api::agent::RELAY;
use jobset_api::{JobSet, labels};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};

use super::problem::names;
use super::{Facts, Finding};

/// The label with the name of a program of the product.
const NAME_LABEL: &str = "app.kubernetes.io/name";
/// The label of each namespace with its name.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";
/// Name of the port on which relays serve agents.
const PORT_NAME: &str = "agents";
/// Port of DNS. The Service of DNS may have another one behind it, which policies name.
const DNS_PORT: i32 = 53;

/// Where the agents look for relays.
struct RelayAddress {
    text: String,
    service: String,
    namespace: String,
    port: i32,
}

impl RelayAddress {
    /// The address in the environment of the agents, if it names a Service.
    fn of(facts: &Facts) -> Option<Self> {
        let pods = facts.jobset.spec.replicated_jobs.iter().filter_map(|it| it.template.spec.template.spec.as_ref());
        let mut containers = pods.flat_map(|pod| pod.containers.iter().chain(pod.init_containers.iter().flatten()));
        let text = containers.find_map(|it| it.env.iter().flatten().find(|it| it.name == RELAY)?.value.clone())?;
        let (host, port) = text.rsplit_once(':')?;
        let mut labels = host.split('.').map(str::to_owned);
        let (service, namespace) = (labels.next()?, labels.next()?);
        let port = port.parse().ok()?;
        Some(Self { text, service, namespace, port })
    }
}

/// What an agent connects to.
struct Destination<'a> {
    port: i32,
    protocol: &'a str,
    /// Whether the port may have this name.
    is_named: fn(&str) -> bool,
    /// Whether a peer of a policy may be it.
    is_peer: &'a dyn Fn(&NetworkPolicy, &NetworkPolicyPeer) -> bool,
}

/// A remark: NetworkPolicies of the namespace keep agents from the relays, or from DNS, by which they look relays up.
pub(super) fn blocked(facts: &Facts) -> Vec<Finding> {
    let (Some(policies), Some(relay)) = (&facts.policies, RelayAddress::of(facts)) else { return Vec::new() };
    let relays = Destination {
        port: relay.port,
        protocol: "TCP",
        is_named: |name| name == PORT_NAME,
        is_peer: &|policy, peer| may_be_relay(policy, peer, &relay),
    };
    // Where DNS is, nobody says: a node may have a cache of its own.
    let dns = Destination { port: DNS_PORT, protocol: "UDP", is_named: |_| true, is_peer: &|_, _| true };
    let advice = format!(
        "Let its Pods connect to Pods with the label {NAME_LABEL}={} of the namespace {}, TCP port {}, and to DNS, UDP port {DNS_PORT}.",
        relay.service, relay.namespace, relay.port
    );
    for (destination, what) in [
        (relays, format!("from the relays ({})", relay.text)),
        (dns, format!("from DNS, so they do not find the relays ({})", relay.text)),
    ] {
        if let Some(limiting) = limited(&facts.jobset, policies, &destination) {
            let what = format!(
                "NetworkPolicies of the namespace keep its agents {what}. They report through the API server instead, so restarts of \
                 large groups take longer."
            );
            let limiting = vec![format!("egress is limited by: {}", names(&limiting))];
            return vec![Finding::new("RelaysBlocked", what, advice).with(limiting)];
        }
    }
    Vec::new()
}

/// Names of the policies that keep the Pods of a replicatedJob from there, if some do.
fn limited(jobset: &JobSet, policies: &[NetworkPolicy], destination: &Destination<'_>) -> Option<Vec<String>> {
    let limiting = |labels: BTreeMap<String, String>| {
        policies.iter().filter(|policy| limits_egress(policy, &labels)).collect::<Vec<_>>()
    };
    let mut of_pods = pod_labels(jobset).map(limiting).filter(|limiting| !limiting.is_empty());
    let blocked = of_pods.find(|limiting| !limiting.iter().any(|policy| may_let_through(policy, destination)))?;
    Some(blocked.iter().map(|policy| policy.name_any()).collect())
}

/// The labels of the Pods of each replicatedJob.
fn pod_labels(jobset: &JobSet) -> impl Iterator<Item = BTreeMap<String, String>> {
    jobset.spec.replicated_jobs.iter().map(|it| {
        let metadata = it.template.spec.template.metadata.as_ref();
        let mut all = metadata.and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
        all.insert(labels::JOBSET_NAME.to_owned(), jobset.name_any());
        all.insert(labels::REPLICATED_JOB_NAME.to_owned(), it.name.clone());
        all
    })
}

/// Whether a policy limits what Pods with these labels may connect to.
fn limits_egress(policy: &NetworkPolicy, labels: &BTreeMap<String, String>) -> bool {
    let Some(spec) = &policy.spec else { return false };
    let types = spec.policy_types.as_ref();
    let is_of_egress = types.map_or(spec.egress.is_some(), |types| types.iter().any(|it| it == "Egress"));
    let selector = spec.pod_selector.clone().map(Selector::try_from);
    is_of_egress && selector.is_none_or(|selector| selector.is_ok_and(|selector| selector.matches(labels)))
}

/// Whether a policy may let connections there through. What is not known here counts as if it did: addresses, and labels beside the
/// two.
fn may_let_through(policy: &NetworkPolicy, destination: &Destination<'_>) -> bool {
    let has_port = |port: &NetworkPolicyPort| {
        let is_number = match &port.port {
            None => true,
            Some(IntOrString::Int(first)) => (*first..=port.end_port.unwrap_or(*first)).contains(&destination.port),
            Some(IntOrString::String(name)) => (destination.is_named)(name),
        };
        is_number && port.protocol.as_deref().unwrap_or("TCP") == destination.protocol
    };
    let lets_through = |rule: &NetworkPolicyEgressRule| {
        let ports = rule.ports.as_deref().unwrap_or_default();
        let peers = rule.to.as_deref().unwrap_or_default();
        let is_peer = |peer: &NetworkPolicyPeer| (destination.is_peer)(policy, peer);
        (ports.is_empty() || ports.iter().any(has_port)) && (peers.is_empty() || peers.iter().any(is_peer))
    };
    policy.spec.iter().flat_map(|spec| spec.egress.iter().flatten()).any(lets_through)
}

/// Whether a peer of this policy may be a relay.
fn may_be_relay(policy: &NetworkPolicy, peer: &NetworkPolicyPeer, relay: &RelayAddress) -> bool {
    let in_namespace = match &peer.namespace_selector {
        None => policy.namespace().as_deref() == Some(&relay.namespace),
        Some(selector) => may_match(selector, NAMESPACE_LABEL, &relay.namespace),
    };
    let is_pod = peer.pod_selector.as_ref().is_none_or(|selector| may_match(selector, NAME_LABEL, &relay.service));
    peer.ip_block.is_some() || in_namespace && is_pod
}

/// Whether a selector selects an object of which this label alone is known.
fn may_match(selector: &LabelSelector, key: &str, value: &str) -> bool {
    let mut known = selector.clone();
    known.match_labels.get_or_insert_default().retain(|of, _| of == key);
    known.match_expressions.get_or_insert_default().retain(|expression| expression.key == key);
    let labels = BTreeMap::from([(key.to_owned(), value.to_owned())]);
    Selector::try_from(known).map_or(true, |known| known.matches(&labels))
}
