//! Environment variables of the agent. A variable that is set does not change.

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector};

use crate::{agent, labels};

/// The variable with this name, and its index.
pub(super) fn variable<'a>(container: &'a Container, name: &str) -> Option<(usize, &'a EnvVar)> {
    container.env.iter().flatten().enumerate().find(|(_, variable)| variable.name == name)
}

/// Adds the variables of the agent: its Pod, its JobSet, its exit code and its port.
pub(super) fn add_agent_variables(container: &mut Container, barrier_port: i32) {
    add(container, from_field(agent::NAMESPACE, "metadata.namespace".to_owned()));
    add(container, from_field(agent::POD_NAME, "metadata.name".to_owned()));
    add(container, from_annotation(agent::JOBSET_NAME, labels::JOBSET_NAME));
    add(container, from_annotation(agent::JOBSET_UID, labels::JOBSET_UID));
    if variable(container, agent::GO_EXIT_CODE).is_none() {
        add(container, with_value(agent::EXIT_CODE, agent::DEFAULT_EXIT_CODE.to_string()));
    }
    add(container, with_value(agent::BARRIER_PORT, barrier_port.to_string()));
}

/// Adds a variable, unless one with this name is set.
pub(super) fn add(container: &mut Container, new: EnvVar) {
    if variable(container, &new.name).is_none() {
        container.env.get_or_insert_default().push(new);
    }
}

pub(super) fn with_value(name: &str, value: String) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value), value_from: None }
}

fn from_annotation(name: &str, annotation: &str) -> EnvVar {
    from_field(name, format!("metadata.annotations['{annotation}']"))
}

fn from_field(name: &str, field_path: String) -> EnvVar {
    let field = ObjectFieldSelector { api_version: None, field_path };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}
