//! The resources of the agent's containers. They are small and do not change the QoS class of the Pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::folder::INSTALLER;
use crate::agent::NAME;
use crate::quantity::nanos;

type Amounts = BTreeMap<String, Quantity>;

/// The resources of the agent. In a Pod of the QoS class Guaranteed, limits equal requests: one container without
/// limits would change the class, and the workers would lose their exclusive CPUs. A Pod with Pod-level resources gets
/// none.
pub(super) fn of_agent(pod: &PodSpec) -> Option<ResourceRequirements> {
    if pod.resources.is_some() {
        return None;
    }
    let amounts = |cpu: &str, memory: &str| -> Option<Amounts> {
        Some([("cpu", cpu), ("memory", memory)].map(|(name, it)| (name.to_owned(), Quantity(it.to_owned()))).into())
    };
    let (requests, limits) = if is_guaranteed(pod) {
        let both = amounts("100m", "64Mi");
        (both.clone(), both)
    } else {
        (amounts("10m", "16Mi"), None)
    };
    Some(ResourceRequirements { requests, limits, ..ResourceRequirements::default() })
}

/// Whether the Pod has the QoS class Guaranteed: the limits of each container equal its requests. Absent requests equal
/// the limits.
fn is_guaranteed(pod: &PodSpec) -> bool {
    let is_limited = |resources: &ResourceRequirements| {
        ["cpu", "memory"].iter().all(|name| {
            let of = |amounts: &Option<Amounts>| amounts.as_ref()?.get(*name).map(|amount| nanos(&amount.0));
            // The kubelet ignores a limit of 0.
            let limit = of(&resources.limits).flatten().filter(|limit| *limit > 0);
            limit.is_some() && of(&resources.requests).is_none_or(|request| request == limit)
        })
    };
    let containers = pod.containers.iter().chain(pod.init_containers.iter().flatten());
    let mut others = containers.filter(|container| ![NAME, INSTALLER].contains(&container.name.as_str()));
    others.all(|container| container.resources.as_ref().is_some_and(is_limited))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::the_same_text(json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "1", "memory": "1Gi" } }), true)]
    #[case::the_same_amount(json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "1000m", "memory": "1024Mi" } }), true)]
    #[case::no_requests(json!({ "limits": { "cpu": "1", "memory": "1Gi" } }), true)]
    #[case::less(json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "999m" } }), false)]
    #[case::one_limit(json!({ "limits": { "cpu": "1" } }), false)]
    #[case::a_limit_of_nothing(json!({ "limits": { "cpu": "0", "memory": "1Gi" } }), false)]
    #[case::no_quantity(json!({ "limits": { "cpu": "?", "memory": "1Gi" }, "requests": { "cpu": "?" } }), false)]
    #[case::nothing(json!({}), false)]
    fn is_guaranteed_compares_quantities_not_texts(#[case] resources: Value, #[case] expected: bool) {
        let pod = json!({ "containers": [{ "name": "worker", "resources": resources }] });
        assert_eq!(is_guaranteed(&serde_json::from_value(pod).unwrap()), expected);
    }
}
