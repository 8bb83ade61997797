//! The values of the agent's environment variables, as far as the manifest shows them.

use k8s_openapi::api::core::v1::{Container, EnvVar};

/// Where an environment variable gets its value from.
pub(super) enum Declared<'a> {
    /// The variable is not set.
    Nowhere,
    /// The manifest has the value. Index of the variable, and its value.
    Here(usize, &'a str),
    /// The value comes from another object or from other variables.
    Elsewhere,
}

/// The first of these variables that is set.
pub(super) fn declared<'a>(container: &'a Container, names: &[&str]) -> Declared<'a> {
    let variables = container.env.as_deref().unwrap_or_default();
    // If several variables have the same name, the last one counts.
    let find = |name: &&str| variables.iter().rposition(|variable| variable.name == **name);
    let Some(index) = names.iter().find_map(find) else {
        return if container.env_from.iter().flatten().next().is_some() {
            Declared::Elsewhere
        } else {
            Declared::Nowhere
        };
    };
    match &variables[index] {
        EnvVar { value_from: Some(_), .. } => Declared::Elsewhere,
        EnvVar { value: Some(value), .. } if value.contains("$(") => Declared::Elsewhere,
        // The agent ignores an empty variable.
        EnvVar { value: Some(value), .. } if !value.is_empty() => Declared::Here(index, value),
        _ => Declared::Nowhere,
    }
}
