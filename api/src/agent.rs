//! The agent in a worker Pod: where it is in a Pod, and the names of [`jobset_protocol::agent`].
//!
//! It runs in one of two shapes. As a *sidecar* it is an init container that always restarts; its startup probe holds the
//! workers back, and its exit code restarts the whole Pod. As a *supervisor* it is the entrypoint of the worker's
//! container, and starts and stops the worker as its child.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::restart_rules::is_agent_sidecar;

pub use jobset_protocol::agent::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Agent<'a> {
    /// The init container of this index.
    Sidecar(usize, &'a Container),
    /// The entrypoint of the container of this index.
    Supervisor(usize, &'a Container),
}

impl<'a> Agent<'a> {
    /// The agents of a Pod, of which there should be one. An agent is a sidecar that gets the JobSet's name, as every agent
    /// does, or an entrypoint with the agent's command. If there is none of these, a likely agent counts: a sidecar that
    /// restarts the Pod, or else a container with the variable of the Go JobSet's supervisor.
    pub fn all_of(pod: &'a PodSpec) -> Vec<Self> {
        let sidecars = || {
            let init = pod.init_containers.iter().flatten().enumerate();
            init.filter(|(_, it)| is_agent_sidecar(it)).map(|(index, it)| Self::Sidecar(index, it))
        };
        let supervisors = |is_supervised: fn(&Container) -> bool| {
            let main = pod.containers.iter().enumerate();
            main.filter(move |(_, it)| is_supervised(it)).map(|(index, it)| Self::Supervisor(index, it))
        };
        let with_name = sidecars().filter(|agent| is_told(agent.container()));
        let certain: Vec<_> = with_name.chain(supervisors(is_supervised_by_command)).collect();
        if !certain.is_empty() {
            return certain;
        }
        let likely: Vec<_> = sidecars().collect();
        if likely.is_empty() { supervisors(is_supervised_by_variable).collect() } else { likely }
    }

    pub fn container(&self) -> &'a Container {
        match self {
            Self::Sidecar(_, container) | Self::Supervisor(_, container) => container,
        }
    }
}

/// Whether the Pod's agent can speak with a relay: a projected volume of the Pod names the ConfigMap [`RELAY_CONFIG_MAP`].
pub fn uses_relay(pod: &PodSpec) -> bool {
    let projected = pod.volumes.iter().flatten().filter_map(|volume| volume.projected.as_ref());
    let mut config_maps = projected.flat_map(|it| it.sources.iter().flatten()).filter_map(|it| it.config_map.as_ref());
    config_maps.any(|config_map| config_map.name == RELAY_CONFIG_MAP)
}

/// Whether the DNS of its node serves the Pod, which knows no Services. On the network of its node, `ClusterFirst` stands for `Default`.
pub fn asks_dns_of_node(pod: &PodSpec) -> bool {
    match pod.dns_policy.as_deref() {
        Some("Default") => true,
        None | Some("ClusterFirst") => pod.host_network == Some(true),
        Some(_) => false,
    }
}

/// Whether the container gets the name of its JobSet, by the variable [`JOBSET_NAME`].
pub fn is_told(container: &Container) -> bool {
    container.env.iter().flatten().any(|variable| variable.name == JOBSET_NAME)
}

/// Whether the container's entrypoint is the agent, by its command.
pub(crate) fn is_supervised_by_command(container: &Container) -> bool {
    let mut words = container.command.iter().flatten().chain(container.args.iter().flatten());
    words.next().is_some_and(|program| program.rsplit('/').next() == Some(NAME))
        && words.next().is_some_and(|word| word == SUPERVISE)
}

/// Whether the container is the Go JobSet's supervisor, which gets the worker's command by a variable. The image brings the
/// entrypoint. A container that names an entrypoint of its own also gets the JobSet's name, as every agent does.
fn is_supervised_by_variable(container: &Container) -> bool {
    let has_command = container.command.iter().flatten().next().is_some();
    let is_given_a_worker = container.env.iter().flatten().any(|variable| variable.name == GO_WORKER_COMMAND);
    is_given_a_worker && (!has_command || is_told(container))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::entrypoint_of_the_image(json!({"env": [{"name": "WORKER_COMMAND", "value": "train"}]}), true)]
    #[case::entrypoint_named(
        json!({"command": ["/in-place-restart-agent"],
               "env": [{"name": "WORKER_COMMAND", "value": "train"}, {"name": "JOBSET_NAME", "value": "train"}]}),
        true
    )]
    #[case::worker_with_such_a_variable(
        json!({"command": ["train"], "env": [{"name": "WORKER_COMMAND", "value": "x"}]}),
        false
    )]
    fn go_supervisor_is_recognized_by_its_variables(#[case] container: Value, #[case] expected: bool) {
        let mut container = container;
        container["name"] = json!("worker");
        let pod: PodSpec = serde_json::from_value(json!({"containers": [container]})).unwrap();
        assert_eq!(matches!(Agent::all_of(&pod)[..], [Agent::Supervisor(0, _)]), expected);
    }

    #[rstest]
    #[case::own_network(json!({}), false)]
    #[case::network_of_the_node(json!({"hostNetwork": true}), true)]
    #[case::default_of_the_api_server(json!({"hostNetwork": true, "dnsPolicy": "ClusterFirst"}), true)]
    #[case::dns_of_the_cluster(json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}), false)]
    #[case::dns_of_its_own(json!({"hostNetwork": true, "dnsPolicy": "None"}), false)]
    #[case::dns_of_the_node(json!({"dnsPolicy": "Default"}), true)]
    fn dns_of_the_node_serves_pods_on_its_network(#[case] mut pod: Value, #[case] expected: bool) {
        pod["containers"] = json!([]);
        assert_eq!(asks_dns_of_node(&serde_json::from_value(pod).unwrap()), expected);
    }

    #[rstest]
    #[case::no_volumes(json!([]), false)]
    #[case::projected(
        json!([{"name": "a", "emptyDir": {}},
               {"name": "b", "projected": {"sources": [
                   {"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "jobset-relay-ca"}}]}}]),
        true
    )]
    #[case::token_alone(
        json!([{"name": "jobset-relay", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]),
        false
    )]
    #[case::other_config_map(
        json!([{"name": "jobset-relay", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}}]),
        false
    )]
    #[case::not_projected(json!([{"name": "jobset-relay", "configMap": {"name": "jobset-relay-ca"}}]), false)]
    fn uses_relay_looks_for_config_map_in_projected_volumes(#[case] volumes: Value, #[case] expected: bool) {
        let pod = serde_json::from_value(json!({"containers": [], "volumes": volumes})).unwrap();
        assert_eq!(uses_relay(&pod), expected);
    }
}
