//! Whether any node is large enough for a Pod that cannot be scheduled.

use std::collections::BTreeMap;

use jobset_api::quantity::nanos;
use jobset_api::restart_rules::is_sidecar;
use jobset_objects::PartialNode;
use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Amounts of resources by their names, in billionths.
type Amounts = BTreeMap<String, i128>;

/// What one Pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequests(Amounts);

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
        Self(sum)
    }

    /// Why no node that there is can ever hold the Pod. `None` if one can, or nothing is known of nodes.
    pub(super) fn never_fit(&self, nodes: &[PartialNode]) -> Option<String> {
        let nodes: Vec<Amounts> = nodes.iter().map(allocatable).filter(|node| !node.is_empty()).collect();
        let wanted = &self.0;
        let has = |node: &Amounts, name: &str| node.get(name).copied().unwrap_or(0);
        if nodes.is_empty() || nodes.iter().any(|node| wanted.iter().all(|(name, amount)| has(node, name) >= *amount)) {
            return None;
        }
        let too_large: Vec<String> = wanted
            .iter()
            .filter_map(|(name, amount)| {
                let largest = nodes.iter().map(|node| has(node, name)).max().unwrap_or(0);
                (largest < *amount)
                    .then(|| format!("{} {name}, and the largest node has {}", shown(*amount), shown(largest)))
            })
            .collect();
        if too_large.is_empty() {
            let all: Vec<String> = wanted.iter().map(|(name, amount)| format!("{} {name}", shown(*amount))).collect();
            return Some(format!("it asks for {}, and no node has all of that together", all.join(", ")));
        }
        Some(format!("it asks for {}", too_large.join("; ")))
    }
}

fn amounts(resources: Option<&ResourceRequirements>) -> Amounts {
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let amount = |(name, Quantity(text)): (&String, &Quantity)| Some((name.clone(), nanos(text)?));
    requests.into_iter().flatten().filter_map(amount).collect()
}

fn allocatable(node: &PartialNode) -> Amounts {
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

    fn nodes(all: &[Value]) -> Vec<PartialNode> {
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

    #[test]
    fn requests_are_added_up_as_by_the_scheduler() {
        let of = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let pod = json!({
            "initContainers": [{"name": "a", "resources": of("3")}, {"name": "s", "restartPolicy": "Always", "resources": of("500m")}],
            "containers": [{"name": "w", "resources": of("1")}, {"name": "x", "resources": of("1")}],
            "overhead": {"cpu": "250m"}});
        let added: BTreeMap<_, _> = requests(&pod).0.into_iter().map(|(name, amount)| (name, shown(amount))).collect();
        assert_eq!(added, BTreeMap::from([("cpu".to_owned(), "3250m".to_owned())]));
    }
}
