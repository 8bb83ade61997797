//! The agent in a worker Pod: the names that manifests, admission and the agent itself share, and where it is in a Pod.
//!
//! It runs in one of two shapes. As a *sidecar* it is an init container that always restarts; its startup probe holds the
//! workers back, and its exit code restarts the whole Pod. As a *supervisor* it is the entrypoint of the worker's
//! container, and starts and stops the worker as its child.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::restart_rules::is_agent_sidecar;

/// Name of the agent's binary, and of the container that is injected.
pub const NAME: &str = "jobset-agent";
/// First argument of the agent as a supervisor; the worker's command follows after `--`.
pub const SUPERVISE: &str = "supervise";
/// First argument of the agent that copies its own binary into the folder that follows.
pub const INSTALL: &str = "install";
/// Exit code of a sidecar that has its Pod restarted in place, where [`EXIT_CODE`] does not say otherwise.
pub const DEFAULT_EXIT_CODE: u8 = 81;
/// Port of the barrier, where [`BARRIER_PORT`] does not say otherwise.
pub const DEFAULT_BARRIER_PORT: u16 = 8080;
/// Path of the barrier, where [`BARRIER_PATH`] does not say otherwise.
pub const DEFAULT_BARRIER_PATH: &str = "/barrier-is-lifted";

/// Path of the barrier of the Go JobSet's agent, by which its sidecar is known.
pub const GO_BARRIER_PATH: &str = "/barrier-is-down";
/// Port of the barrier of the Go JobSet's agent, where [`GO_BARRIER_PORT`] does not say otherwise.
pub const GO_DEFAULT_BARRIER_PORT: u16 = 8081;
/// Exit code of the Go JobSet's agent, where [`GO_EXIT_CODE`] does not say otherwise.
pub const GO_DEFAULT_EXIT_CODE: u8 = 1;

/// Environment of the agent: namespace of its Pod.
pub const NAMESPACE: &str = "NAMESPACE";
/// Environment of the agent: name of its Pod.
pub const POD_NAME: &str = "POD_NAME";
/// Environment of the agent: name of its JobSet.
pub const JOBSET_NAME: &str = "JOBSET_NAME";
/// Environment of the agent: UID of its JobSet.
pub const JOBSET_UID: &str = "JOBSET_UID";
/// Environment of the agent: the exit code that has its Pod restarted in place, 1 to 255 (KEP-467).
pub const EXIT_CODE: &str = "RESTART_POD_IN_PLACE_EXIT_CODE";
/// The Go JobSet's name of [`EXIT_CODE`].
pub const GO_EXIT_CODE: &str = "IN_PLACE_RESTART_EXIT_CODE";
/// Environment of the agent: port of the barrier.
pub const BARRIER_PORT: &str = "BARRIER_PORT";
/// Environment of the agent: path of the barrier.
pub const BARRIER_PATH: &str = "BARRIER_PATH";
/// The Go JobSet's name of [`BARRIER_PORT`].
pub const GO_BARRIER_PORT: &str = "STARTUP_PROBE_PORT";
/// The Go JobSet's name of [`BARRIER_PATH`].
pub const GO_BARRIER_PATH_VARIABLE: &str = "STARTUP_PROBE_PATH";
/// Environment of the Go JobSet's agent as a supervisor: the worker as a shell command.
pub const GO_WORKER_COMMAND: &str = "WORKER_COMMAND";
/// Environment of the agent as a sidecar: file that it writes the epoch to before it lifts the barrier.
pub const EPOCH_FILE: &str = "EPOCH_FILE";
/// Environment of the agent as a supervisor: exit codes of the worker that end the container, such as `2,3,64-78`.
pub const FATAL_EXIT_CODES: &str = "FATAL_EXIT_CODES";
/// Environment of the worker: its epoch. Key of the file, too.
pub const EPOCH: &str = "JOBSET_EPOCH";

/// Reads a list of exit codes and ranges of them, such as `2,3,64-78`, as the agent reads [`FATAL_EXIT_CODES`]. 0 is no
/// failure, and so in no list. `None` if the text is none.
///
/// The agent has its own reading: it is in every worker's Pod, and its binary is smaller without this crate. Its tests hold
/// the two against each other.
pub fn exit_codes(text: &str) -> Option<BTreeSet<u8>> {
    let code = |text: &str| text.trim().parse::<u8>().ok().filter(|code| *code > 0);
    let mut codes = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (code(first)?, code(last)?);
        if first > last {
            return None;
        }
        codes.extend(first..=last);
    }
    Some(codes)
}

/// Where the agent is in a Pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Agent<'a> {
    /// The init container of this index.
    Sidecar(usize, &'a Container),
    /// The entrypoint of the container of this index.
    Supervisor(usize, &'a Container),
}

impl<'a> Agent<'a> {
    /// The agents of a Pod, of which there should be one: sidecars that are told the JobSet's name, as every agent is, and
    /// entrypoints by their command. Where there is none of these, what could be one: a sidecar that restarts the Pod, or
    /// else a container with the variable of the Go JobSet's supervisor.
    pub fn all_of(pod: &'a PodSpec) -> Vec<Self> {
        let sidecars = || {
            let init = pod.init_containers.iter().flatten().enumerate();
            init.filter(|(_, it)| is_agent_sidecar(it)).map(|(index, it)| Self::Sidecar(index, it))
        };
        let supervisors = |is_supervised: fn(&Container) -> bool| {
            let main = pod.containers.iter().enumerate();
            main.filter(move |(_, it)| is_supervised(it)).map(|(index, it)| Self::Supervisor(index, it))
        };
        let told = sidecars().filter(|agent| is_told(agent.container()));
        let certain: Vec<_> = told.chain(supervisors(is_supervised_by_command)).collect();
        if !certain.is_empty() {
            return certain;
        }
        let likely: Vec<_> = sidecars().collect();
        if likely.is_empty() { supervisors(is_supervised_by_variable).collect() } else { likely }
    }

    /// The container that it is in.
    pub fn container(&self) -> &'a Container {
        match self {
            Self::Sidecar(_, container) | Self::Supervisor(_, container) => container,
        }
    }
}

/// Whether the container is told the name of its JobSet.
pub fn is_told(container: &Container) -> bool {
    container.env.iter().flatten().any(|variable| variable.name == JOBSET_NAME)
}

/// Whether the container's entrypoint is the agent, by its command.
pub(crate) fn is_supervised_by_command(container: &Container) -> bool {
    let mut words = container.command.iter().flatten().chain(container.args.iter().flatten());
    words.next().is_some_and(|program| program.rsplit('/').next() == Some(NAME))
        && words.next().is_some_and(|word| word == SUPERVISE)
}

/// Whether it is the Go JobSet's agent, which gets the worker's command by a variable. Its image brings the entrypoint; a
/// container that names one is told the JobSet's name, as every agent is.
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
    fn supervisor_of_the_go_jobset_is_known_by_its_variables(#[case] container: Value, #[case] expected: bool) {
        let mut container = container;
        container["name"] = json!("worker");
        let pod: PodSpec = serde_json::from_value(json!({"containers": [container]})).unwrap();
        assert_eq!(matches!(Agent::all_of(&pod)[..], [Agent::Supervisor(0, _)]), expected);
    }
}
