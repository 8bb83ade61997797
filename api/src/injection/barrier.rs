//! Port and path at which the agent answers whether the barrier is lifted. No other container of the Pod uses the port.
//! The environment, the probe and the declared ports have the same value.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, ContainerPort, HTTPGetAction, PodSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::environment::variable;
use crate::agent;
use crate::field::{Errors, Path};

const NAME: &str = "barrier";

const NO_NUMBER: &str =
    "must be a number from 1 to 65535 here, not taken from elsewhere: it is also the port of the probe";
const TAKEN: &str = "must be a port that no other container of the Pod declares: choose another one, or omit it, so \
                     that a free port is used";

/// Which ports of the agent's container belong to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentPorts {
    /// All ports. The container runs only the agent.
    All,
    /// Only the port of its environment variable. The container also runs the worker.
    Configured,
}

/// Port and path of the barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Barrier {
    pub(super) port: i32,
    path: String,
}

impl Barrier {
    /// The barrier of the agent in the container with this name. A port that the user has set is used, or rejected if
    /// it is not free. Otherwise the port is the first free one, starting at the default.
    pub(super) fn choose(
        pod: &PodSpec,
        name: &str,
        ports: AgentPorts,
        path: &Path<'_>,
        errors: &mut Errors,
    ) -> Option<Self> {
        let init = pod.init_containers.iter().flatten().enumerate().map(|(index, it)| ("initContainers", index, it));
        let main = pod.containers.iter().enumerate().map(|(index, it)| ("containers", index, it));
        let found = init.chain(main).find(|(_, _, container)| container.name == name);
        let agent = found.map(|(_, _, container)| container);
        let taken = taken(pod, agent, ports);
        let barrier_path = agent.and_then(|it| variable(it, agent::BARRIER_PATH)?.1.value.clone());
        let barrier_path = barrier_path.unwrap_or_else(|| agent::DEFAULT_BARRIER_PATH.to_owned());
        let given = found.and_then(|(list, index, it)| Some((list, index, variable(it, agent::BARRIER_PORT)?)));
        let Some((list, index, (place, variable))) = given else {
            let first = i32::from(agent::DEFAULT_BARRIER_PORT);
            let port = (first..=i32::from(u16::MAX)).find(|port| !taken.contains(port)).unwrap_or(first);
            return Some(Self { port, path: barrier_path });
        };
        let (list, env) = (path.child(list), format!("env[{place}].value"));
        let container = list.index(index);
        let field = container.child(&env);
        match variable.value.as_deref().and_then(|value| value.parse::<u16>().ok()).filter(|port| *port > 0) {
            None => errors.invalid(&field, &variable.value, NO_NUMBER),
            Some(port) if taken.contains(&i32::from(port)) => errors.invalid(&field, &variable.value, TAKEN),
            Some(port) => return Some(Self { port: i32::from(port), path: barrier_path }),
        }
        None
    }

    /// Declares the port. If the Pod uses the host network, the scheduler then places two agents on different nodes.
    pub(super) fn declare(&self, container: &mut Container) {
        let ports = container.ports.get_or_insert_default();
        if ports.iter().all(|port| port.container_port != self.port || !is_tcp(port)) {
            let named = ports.iter().any(|port| port.name.as_deref() == Some(NAME));
            ports.push(ContainerPort {
                container_port: self.port,
                name: (!named).then(|| NAME.to_owned()),
                // The protocol is a map key of this list, so it is required.
                protocol: Some("TCP".to_owned()),
                ..ContainerPort::default()
            });
        }
    }

    /// A probe that succeeds when the barrier is lifted.
    pub(super) fn probe(&self) -> Probe {
        let get = HTTPGetAction {
            path: Some(self.path.clone()),
            port: IntOrString::Int(self.port),
            ..HTTPGetAction::default()
        };
        Probe { http_get: Some(get), period_seconds: Some(1), ..Probe::default() }
    }
}

/// The TCP ports that the containers of the Pod declare, except those of the agent.
fn taken(pod: &PodSpec, agent: Option<&Container>, ports: AgentPorts) -> HashSet<i32> {
    let configured = agent.and_then(|it| variable(it, agent::BARRIER_PORT)?.1.value.as_deref()?.parse::<i32>().ok());
    let is_own = |container: &Container, port: &ContainerPort| {
        let agents = agent.is_some_and(|agent| agent.name == container.name);
        agents && (ports == AgentPorts::All || configured == Some(port.container_port))
    };
    let containers = pod.init_containers.iter().flatten().chain(&pod.containers);
    let ports = containers.flat_map(|it| it.ports.iter().flatten().map(move |port| (it, port)));
    let others = ports.filter(|(_, port)| is_tcp(port)).filter(|(container, port)| !is_own(container, port));
    others.flat_map(|(_, port)| [Some(port.container_port), port.host_port]).flatten().collect()
}

fn is_tcp(port: &ContainerPort) -> bool {
    port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
}
