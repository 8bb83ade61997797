//! How a worker next to a sidecar gets its epoch. The agent writes the epoch to a file in a shared volume before it
//! lifts the barrier. The kubelet sets a variable from the file when it starts the worker (`fileKeyRef`, KEP-3721, on
//! by default since Kubernetes 1.35). A variable from the Pod's annotation is not reliable: the kubelet may start the
//! worker with an outdated Pod, which has the previous epoch.

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, FileKeySelector, PodSpec};

use super::{environment, folder};
use crate::agent;

const FILE: &str = "epoch";
/// Path of the file in the agent's container.
const PATH: &str = "/var/run/jobset-agent/epoch";

/// Configures the agent to write the file.
pub(super) fn write(agent: &mut Container) {
    environment::add(agent, environment::with_value(agent::EPOCH_FILE, PATH.to_owned()));
    folder::mount(agent, false);
}

/// Configures the workers to read the file, unless the agent writes another file.
pub(super) fn read(pod: &mut PodSpec, agent: &str) {
    let mut init = pod.init_containers.iter().flatten();
    let path = init.find(|it| it.name == agent).and_then(|it| environment::variable(it, agent::EPOCH_FILE));
    if path.is_none_or(|(_, variable)| variable.value.as_deref() != Some(PATH)) {
        return;
    }
    folder::add_volume(pod);
    for worker in &mut pod.containers {
        let file = FileKeySelector {
            volume_name: folder::VOLUME.to_owned(),
            path: FILE.to_owned(),
            key: agent::EPOCH.to_owned(),
            // An agent that ignores epochs, such as with the annotation that disables in-place restart, writes no file.
            optional: Some(true),
        };
        let source = EnvVarSource { file_key_ref: Some(file), ..EnvVarSource::default() };
        environment::add(worker, EnvVar { name: agent::EPOCH.to_owned(), value: None, value_from: Some(source) });
    }
}
