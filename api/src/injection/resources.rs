//! The resources of the agent's containers. They are small and do not change the QoS class of the Pod.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::folder::INSTALLER;
use crate::agent::NAME;
use crate::quantity::nanos;

/// Resources that every node has. An agent that asked for another one could keep its Pod from all nodes.
const KNOWN: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Amounts by the name of their resource. As text, `cpu=10m,memory=16Mi`, as `kubectl set resources` takes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, String>);

impl Amounts {
    fn of(amounts: &[(&str, &str)]) -> Self {
        Self(amounts.iter().map(|(name, it)| ((*name).to_owned(), (*it).to_owned())).collect())
    }

    fn into_field(self) -> Option<BTreeMap<String, Quantity>> {
        let field: BTreeMap<_, _> = self.0.into_iter().map(|(name, amount)| (name, Quantity(amount))).collect();
        (!field.is_empty()).then_some(field)
    }
}

impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, amount)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={amount}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Amounts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut amounts = Self::default();
        for entry in text.split(',').filter(|_| !text.is_empty()) {
            let (name, amount) = entry.split_once('=').ok_or_else(|| format!("{entry:?} must be NAME=QUANTITY"))?;
            if !KNOWN.contains(&name) {
                return Err(format!("{name:?} must be one of {}", KNOWN.join(", ")));
            }
            if nanos(amount).is_none_or(|amount| amount < 0) {
                return Err(format!("{amount:?} of {name} must be a quantity such as 100m or 64Mi, and not negative"));
            }
            if amounts.0.insert(name.to_owned(), amount.to_owned()).is_some() {
                return Err(format!("{name} must be given once"));
            }
        }
        Ok(amounts)
    }
}

/// Requests and limits of the agent's container. Both have limits by default, because a ResourceQuota of limits refuses Pods of
/// which a container has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentResources {
    pub requests: Amounts,
    pub limits: Amounts,
}

impl Default for AgentResources {
    fn default() -> Self {
        Self {
            requests: Amounts::of(&[("cpu", "10m"), ("memory", "16Mi")]),
            limits: Amounts::of(&[("cpu", "100m"), ("memory", "64Mi")]),
        }
    }
}

impl AgentResources {
    /// Requests and limits of all resources that an agent can have, whatever their amounts.
    pub(crate) fn of_all() -> Self {
        let all = Amounts::of(&KNOWN.map(|name| (name, "0")));
        Self { requests: all.clone(), limits: all }
    }

    /// Why the API server would refuse every Pod with these resources: the first request that is above its limit.
    ///
    /// # Errors
    /// The resource, with request and limit.
    pub fn check(&self) -> Result<(), String> {
        for (name, request) in &self.requests.0 {
            if let Some(limit) = self.limits.0.get(name).filter(|limit| nanos(request) > nanos(limit)) {
                return Err(format!("the agent's request of {name}, {request}, must not be above its limit, {limit}"));
            }
        }
        Ok(())
    }

    /// The same amounts as requests and as limits, those of cpu and memory in any case.
    fn guaranteed(&self) -> Self {
        let mut both = Self::default().limits;
        both.0.extend(self.requests.0.clone());
        both.0.extend(self.limits.0.clone());
        Self { requests: both.clone(), limits: both }
    }
}

/// The resources of the agent. In a Pod of the QoS class Guaranteed, requests equal limits: one container with lower requests
/// would change the class, and the workers would lose their exclusive CPUs. A Pod with Pod-level resources gets none.
pub(super) fn of_agent(pod: &PodSpec, configured: &AgentResources) -> Option<ResourceRequirements> {
    if pod.resources.is_some() {
        return None;
    }
    let resources = if is_guaranteed(pod) { configured.guaranteed() } else { configured.clone() };
    let (requests, limits) = (resources.requests.into_field(), resources.limits.into_field());
    let some = requests.is_some() || limits.is_some();
    some.then(|| ResourceRequirements { requests, limits, ..ResourceRequirements::default() })
}

fn is_of_agent(container: &Container) -> bool {
    [NAME, INSTALLER].contains(&container.name.as_str())
}

/// Whether the Pod has the QoS class Guaranteed: the limits of each container equal its requests. Absent requests equal
/// the limits.
fn is_guaranteed(pod: &PodSpec) -> bool {
    let is_limited = |resources: &ResourceRequirements| {
        ["cpu", "memory"].iter().all(|name| {
            let of = |amounts: &Option<BTreeMap<String, Quantity>>| Some(nanos(&amounts.as_ref()?.get(*name)?.0));
            // The kubelet ignores a limit of 0.
            let limit = of(&resources.limits).flatten().filter(|limit| *limit > 0);
            limit.is_some() && of(&resources.requests).is_none_or(|request| request == limit)
        })
    };
    let containers = pod.containers.iter().chain(pod.init_containers.iter().flatten());
    let mut others = containers.filter(|container| !is_of_agent(container));
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

    const GUARANTEED: &str = r#"{"limits": {"cpu": "1", "memory": "1Gi"}}"#;
    const BURSTABLE: &str = r#"{"requests": {"cpu": "1"}}"#;

    #[rstest]
    #[case::default_burstable(
        BURSTABLE,
        "cpu=10m,memory=16Mi",
        "cpu=100m,memory=64Mi",
        "cpu=10m,memory=16Mi",
        "cpu=100m,memory=64Mi"
    )]
    #[case::default_guaranteed(
        GUARANTEED,
        "cpu=10m,memory=16Mi",
        "cpu=100m,memory=64Mi",
        "cpu=100m,memory=64Mi",
        "cpu=100m,memory=64Mi"
    )]
    #[case::minimum_of_limit_range(
        BURSTABLE,
        "cpu=50m,memory=64Mi",
        "cpu=200m,memory=64Mi",
        "cpu=50m,memory=64Mi",
        "cpu=200m,memory=64Mi"
    )]
    #[case::no_limits(BURSTABLE, "cpu=10m", "", "cpu=10m", "")]
    #[case::none(BURSTABLE, "", "", "", "")]
    #[case::no_limits_guaranteed(GUARANTEED, "cpu=10m", "", "cpu=10m,memory=64Mi", "cpu=10m,memory=64Mi")]
    #[case::none_guaranteed(GUARANTEED, "", "", "cpu=100m,memory=64Mi", "cpu=100m,memory=64Mi")]
    #[case::storage_guaranteed(
        GUARANTEED,
        "ephemeral-storage=1Mi",
        "",
        "cpu=100m,ephemeral-storage=1Mi,memory=64Mi",
        "cpu=100m,ephemeral-storage=1Mi,memory=64Mi"
    )]
    fn agent_resources_follow_settings_and_class(
        #[case] worker: &str,
        #[case] requests: &str,
        #[case] limits: &str,
        #[case] injected_requests: &str,
        #[case] injected_limits: &str,
    ) {
        let worker: Value = serde_json::from_str(worker).unwrap();
        let pod = serde_json::from_value(json!({ "containers": [{ "name": "worker", "resources": worker }] })).unwrap();
        let configured = AgentResources { requests: requests.parse().unwrap(), limits: limits.parse().unwrap() };
        let injected = of_agent(&pod, &configured);
        assert_eq!(injected.is_none(), injected_limits.is_empty() && injected_requests.is_empty());
        let ResourceRequirements { requests, limits, .. } = injected.unwrap_or_default();
        let texts = [requests, limits].map(|it| {
            let amounts = it.into_iter().flatten().map(|(name, Quantity(amount))| (name, amount));
            Amounts(amounts.collect()).to_string()
        });
        assert_eq!(texts, [injected_requests, injected_limits]);
    }

    #[rstest]
    #[case::no_amount("cpu", "\"cpu\" must be NAME=QUANTITY")]
    #[case::no_quantity("cpu=much", "\"much\" of cpu must be a quantity")]
    #[case::negative("memory=-1", "not negative")]
    #[case::twice("cpu=1,cpu=2", "cpu must be given once")]
    #[case::extended("nvidia.com/gpu=1", "must be one of cpu, memory, ephemeral-storage")]
    #[case::trailing_comma("cpu=1,", "\"\" must be NAME=QUANTITY")]
    fn amounts_malformed_are_rejected(#[case] text: &str, #[case] expected: &str) {
        let error = text.parse::<Amounts>().unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    #[rstest]
    #[case::default("cpu=10m,memory=16Mi", "cpu=100m,memory=64Mi", None)]
    #[case::equal("memory=64Mi", "memory=65536Ki", None)]
    #[case::unlimited("cpu=8", "", None)]
    #[case::above("cpu=0.2", "cpu=100m", Some("request of cpu, 0.2, must not be above its limit, 100m"))]
    fn request_above_its_limit_is_rejected(
        #[case] requests: &str,
        #[case] limits: &str,
        #[case] expected: Option<&str>,
    ) {
        let resources = AgentResources { requests: requests.parse().unwrap(), limits: limits.parse().unwrap() };
        let error = resources.check().err();
        assert_eq!(error.is_some(), expected.is_some(), "{error:?}");
        assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()));
    }
}
