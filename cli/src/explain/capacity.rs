//! Whether any node that a Pod may use is large enough for it, where it cannot be scheduled.

use std::collections::BTreeMap;

use jobset_api::quantity::nanos;
use jobset_api::restart_rules::is_sidecar;
use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::candidates::{CandidateNode, NodeChoice};

/// Amounts of resources by their names, in billionths.
type Amounts = BTreeMap<String, i128>;

/// What one Pod asks for, and of which nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodRequests {
    amounts: Amounts,
    choice: NodeChoice,
}

impl PodRequests {
    /// The requests of a Pod, as the scheduler adds them up: of its containers and sidecars, or of its largest init container, with the
    /// overhead. The requests of the Pod as a whole take their place.
    pub fn of(pod: &PodSpec) -> Self {
        let init = pod.init_containers.as_deref().unwrap_or_default();
        let mut sum = Amounts::new();
        for container in pod.containers.iter().chain(init.iter().filter(|it| is_sidecar(it))) {
            for (name, amount) in amounts(container.resources.as_ref()) {
                *sum.entry(name).or_default() += amount;
            }
        }
        for container in init.iter().filter(|it| !is_sidecar(it)) {
            for (name, amount) in amounts(container.resources.as_ref()) {
                let known = sum.entry(name).or_default();
                *known = amount.max(*known);
            }
        }
        sum.extend(amounts(pod.resources.as_ref()));
        for (name, amount) in pod.overhead.iter().flatten() {
            *sum.entry(name.clone()).or_default() += nanos(&amount.0).unwrap_or(0);
        }
        sum.retain(|_, amount| *amount > 0);
        Self { amounts: sum, choice: NodeChoice::of(pod) }
    }

    /// Why no node that there is can ever hold the Pod. `None` if one can, or nothing is known of nodes.
    pub(super) fn never_fit(&self, nodes: &[CandidateNode]) -> Option<String> {
        let known: Vec<&CandidateNode> = nodes.iter().filter(|node| !node.status.allocatable.is_empty()).collect();
        if known.is_empty() {
            return None;
        }
        let (nodes, which) = match self.choice.narrow(known) {
            Ok(narrowed) => narrowed,
            Err(why) => return Some(why),
        };
        let nodes: Vec<Amounts> = nodes.into_iter().map(allocatable).collect();
        let wanted = &self.amounts;
        let has = |node: &Amounts, name: &str| node.get(name).copied().unwrap_or(0);
        if nodes.iter().any(|node| wanted.iter().all(|(name, amount)| has(node, name) >= *amount)) {
            return None;
        }
        let too_large: Vec<String> = wanted
            .iter()
            .filter_map(|(name, amount)| {
                let largest = nodes.iter().map(|node| has(node, name)).max().unwrap_or(0);
                (largest < *amount)
                    .then(|| format!("{} {name}, and the largest node{which} has {}", shown(*amount), shown(largest)))
            })
            .collect();
        if too_large.is_empty() {
            let all: Vec<String> = wanted.iter().map(|(name, amount)| format!("{} {name}", shown(*amount))).collect();
            return Some(format!("it asks for {}, and no node{which} has all of that together", all.join(", ")));
        }
        Some(format!("it asks for {}", too_large.join("; ")))
    }
}

fn amounts(resources: Option<&ResourceRequirements>) -> Amounts {
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let amount = |(name, Quantity(text)): (&String, &Quantity)| Some((name.clone(), nanos(text)?));
    requests.into_iter().flatten().filter_map(amount).collect()
}

fn allocatable(node: &CandidateNode) -> Amounts {
    let amount = |(name, text): (&String, &String)| Some((name.clone(), nanos(text)?));
    node.status.allocatable.iter().filter_map(amount).collect()
}

/// An amount as a quantity: whole, or in thousandths, or, if it is large, in powers of two.
fn shown(nanos: i128) -> String {
    const ONE: i128 = 1_000_000_000;
    if nanos % ONE != 0 {
        return format!("{}m", nanos / 1_000_000);
    }
    let whole = nanos / ONE;
    for (suffix, power) in [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        if whole >= 1 << power && whole % (1 << power) == 0 {
            return format!("{}{suffix}", whole >> power);
        }
    }
    whole.to_string()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn requests(pod: &Value) -> PodRequests {
        PodRequests::of(&serde_json::from_value(pod.clone()).unwrap())
    }

    fn nodes(all: &[Value]) -> Vec<CandidateNode> {
        let node =
            |of: &Value| serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"allocatable": of}}));
        all.iter().map(|of| node(of).unwrap()).collect()
    }

    fn asks(of: &Value) -> Value {
        json!({"containers": [{"name": "w", "resources": {"requests": of}}]})
    }

    #[rstest]
    #[case::fits(json!({"cpu": "4", "memory": "64Gi"}), None)]
    #[case::as_large_as_a_node(json!({"nvidia.com/gpu": "8"}), None)]
    #[case::too_many_gpus(json!({"nvidia.com/gpu": "16"}), Some("it asks for 16 nvidia.com/gpu, and the largest node has 8"))]
    #[case::resource_of_no_node(json!({"tpu": "1"}), Some("it asks for 1 tpu, and the largest node has 0"))]
    #[case::thousandths(json!({"cpu": "64500m"}), Some("it asks for 64500m cpu, and the largest node has 64"))]
    #[case::no_node_has_both(json!({"cpu": "64", "nvidia.com/gpu": "8"}), Some("it asks for 64 cpu, 8 nvidia.com/gpu, and no node has all of that together"))]
    #[case::nothing(json!({}), None)]
    fn request_that_no_node_can_hold_is_told(#[case] of: Value, #[case] expected: Option<&str>) {
        let nodes = nodes(&[
            json!({"cpu": "32", "memory": "512Gi", "nvidia.com/gpu": "8"}),
            json!({"cpu": "64", "memory": "128Gi"}),
        ]);
        assert_eq!(requests(&asks(&of)).never_fit(&nodes).as_deref(), expected);
        assert_eq!(requests(&asks(&of)).never_fit(&[]), None, "nodes that nobody may read");
    }

    /// Nodes of pool a have four GPUs, those of pool b eight; those of pool c as well, for others.
    #[rstest]
    #[case::anywhere(json!({}), None)]
    #[case::pool_too_small(json!({"nodeSelector": {"pool": "a"}}), Some("it asks for 8 gpu, and the largest node with pool=a has 4"))]
    #[case::large_pool(json!({"nodeSelector": {"pool": "b"}}), None)]
    #[case::no_such_pool(json!({"nodeSelector": {"pool": "z"}}), Some("no node has pool=z"))]
    #[case::tainted_pool(json!({"nodeSelector": {"pool": "c"}}), Some("each node with pool=c has a taint that it does not tolerate, such as team=x:NoSchedule"))]
    #[case::tolerated_pool(json!({"nodeSelector": {"pool": "c"}, "tolerations": [{"key": "team", "value": "x"}]}), None)]
    #[case::affinity_to_small_nodes(affinity(&json!({"key": "pool", "operator": "NotIn", "values": ["b", "c"]})), Some("it asks for 8 gpu, and the largest node that its required node affinity allows has 4"))]
    #[case::affinity_to_no_node(affinity(&json!({"key": "rack", "operator": "Exists"})), Some("no node matches its required node affinity"))]
    #[case::selector_and_taint(json!({"nodeSelector": {"size": "8"}, "tolerations": [{"key": "other", "operator": "Exists"}]}), None)]
    fn only_nodes_that_pod_may_use_can_hold_it(#[case] mut pod: Value, #[case] expected: Option<&str>) {
        let node = |name: &str, gpus: &str, taints: Value| json!({"metadata": {"name": name, "labels": {"pool": name, "size": gpus}}, "spec": {"taints": taints}, "status": {"allocatable": {"gpu": gpus}}});
        let nodes = json!([
            node("a", "4", json!([])),
            // A cordon may end.
            node("b", "8", json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}])),
            node("c", "8", json!([{"key": "team", "value": "x", "effect": "NoSchedule"}])),
        ]);
        let nodes: Vec<CandidateNode> = serde_json::from_value(nodes).unwrap();
        pod["containers"] = asks(&json!({"gpu": "8"}))["containers"].clone();
        assert_eq!(requests(&pod).never_fit(&nodes).as_deref(), expected);
    }

    fn affinity(expression: &Value) -> Value {
        let terms = json!([{"matchExpressions": [expression]}]);
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        json!({"affinity": {"nodeAffinity": required}})
    }

    #[test]
    fn requests_are_added_up_as_by_the_scheduler() {
        let of = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let pod = json!({
            "initContainers": [{"name": "a", "resources": of("3")}, {"name": "s", "restartPolicy": "Always", "resources": of("500m")}],
            "containers": [{"name": "w", "resources": of("1")}, {"name": "x", "resources": of("1")}],
            "overhead": {"cpu": "250m"}});
        let added: BTreeMap<_, _> =
            requests(&pod).amounts.into_iter().map(|(name, amount)| (name, shown(amount))).collect();
        assert_eq!(added, BTreeMap::from([("cpu".to_owned(), "3250m".to_owned())]));
    }
}
