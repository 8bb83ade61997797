//! Where the agent is asked whether the barrier is lifted: a port that nothing else in the Pod uses, the same in
//! environment, probe and declared ports.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, ContainerPort, HTTPGetAction, PodSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::environment::variable;
use crate::agent;
use crate::field::{Errors, Path};

/// Name of the port.
const NAME: &str = "barrier";

const NO_NUMBER: &str =
    "must be a number from 1 to 65535 here, not taken from elsewhere: it is also the port of the probe";
const TAKEN: &str = "must be a port that no other container of the Pod declares: choose another, or leave it out, and a \
                     free one is taken";

/// Which ports of its container are the agent's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// All of them: the container is the agent's.
    All,
    /// The one that it is told: the container is the worker's.
    Told,
}

/// Port and path of the barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Barrier {
    pub(super) port: i32,
    path: String,
}

impl Barrier {
    /// The barrier of the agent in the container of this name. A port that the user has set is taken, or refused if it is
    /// not free; otherwise it is the first free one from the default on.
    pub(super) fn choose(pod: &PodSpec, name: &str, own: Own, path: &Path<'_>, errors: &mut Errors) -> Option<Self> {
        let init = pod.init_containers.iter().flatten().enumerate().map(|(index, it)| ("initContainers", index, it));
        let main = pod.containers.iter().enumerate().map(|(index, it)| ("containers", index, it));
        let found = init.chain(main).find(|(_, _, container)| container.name == name);
        let agent = found.map(|(_, _, container)| container);
        let taken = taken(pod, agent, own);
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

    /// Declares the port, so that with the host's network the scheduler keeps two agents apart.
    pub(super) fn declare(&self, container: &mut Container) {
        let ports = container.ports.get_or_insert_default();
        if ports.iter().all(|port| port.container_port != self.port || !is_tcp(port)) {
            let named = ports.iter().any(|port| port.name.as_deref() == Some(NAME));
            ports.push(ContainerPort {
                container_port: self.port,
                name: (!named).then(|| NAME.to_owned()),
                // Part of the key of this list, which has to be there.
                protocol: Some("TCP".to_owned()),
                ..ContainerPort::default()
            });
        }
    }

    /// A probe that succeeds once the barrier is lifted.
    pub(super) fn probe(&self) -> Probe {
        let get = HTTPGetAction {
            path: Some(self.path.clone()),
            port: IntOrString::Int(self.port),
            ..HTTPGetAction::default()
        };
        Probe { http_get: Some(get), period_seconds: Some(1), ..Probe::default() }
    }
}

/// The TCP ports that the containers of the Pod declare, but for the agent's own.
fn taken(pod: &PodSpec, agent: Option<&Container>, own: Own) -> HashSet<i32> {
    let told = agent.and_then(|it| variable(it, agent::BARRIER_PORT)?.1.value.as_deref()?.parse::<i32>().ok());
    let is_own = |container: &Container, port: &ContainerPort| {
        let agents = agent.is_some_and(|agent| agent.name == container.name);
        agents && (own == Own::All || told == Some(port.container_port))
    };
    let containers = pod.init_containers.iter().flatten().chain(&pod.containers);
    let ports = containers.flat_map(|it| it.ports.iter().flatten().map(move |port| (it, port)));
    let others = ports.filter(|(_, port)| is_tcp(port)).filter(|(container, port)| !is_own(container, port));
    others.flat_map(|(_, port)| [Some(port.container_port), port.host_port]).flatten().collect()
}

fn is_tcp(port: &ContainerPort) -> bool {
    port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
}
