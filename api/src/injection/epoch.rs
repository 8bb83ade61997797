//! How a worker beside a sidecar learns its epoch: the agent writes it to a file of a shared volume before it lifts the
//! barrier, and the kubelet makes a variable of it as it starts the worker (`fileKeyRef`, KEP-3721; on by default since
//! Kubernetes 1.35). The Pod's annotation would not do: a kubelet may start the worker by the Pod as it was before the
//! report, with the epoch before.

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, FileKeySelector, PodSpec};

use super::{environment, folder};
use crate::agent;

/// Name of the file.
const FILE: &str = "epoch";
/// The file as the agent sees it.
const PATH: &str = "/var/run/jobset-agent/epoch";

/// Has the agent write the file.
pub(super) fn write(agent: &mut Container) {
    environment::add(agent, environment::with_value(agent::EPOCH_FILE, PATH.to_owned()));
    folder::mount(agent, false);
}

/// Has the workers read it, unless the agent was told of another file.
pub(super) fn read(pod: &mut PodSpec, agent: &str) {
    let mut init = pod.init_containers.iter().flatten();
    let told = init.find(|it| it.name == agent).and_then(|it| environment::variable(it, agent::EPOCH_FILE));
    if told.is_none_or(|(_, variable)| variable.value.as_deref() != Some(PATH)) {
        return;
    }
    folder::add_volume(pod);
    for worker in &mut pod.containers {
        let file = FileKeySelector {
            volume_name: folder::VOLUME.to_owned(),
            path: FILE.to_owned(),
            key: agent::EPOCH.to_owned(),
            // An agent that lets its worker run whatever the epoch writes none.
            optional: Some(true),
        };
        let source = EnvVarSource { file_key_ref: Some(file), ..EnvVarSource::default() };
        environment::add(worker, EnvVar { name: agent::EPOCH.to_owned(), value: None, value_from: Some(source) });
    }
}
