//! What the agent is told by its environment, as far as its manifest shows.

use k8s_openapi::api::core::v1::{Container, EnvVar};

/// Where a variable of the environment gets its value from.
pub(super) enum Declared<'a> {
    /// It is not set.
    Nowhere,
    /// It is set here: index of the variable, and its value.
    Here(usize, &'a str),
    /// From an object that is not seen here, or made of other variables.
    Elsewhere,
}

/// The first of the names that is set.
pub(super) fn declared<'a>(container: &'a Container, names: &[&str]) -> Declared<'a> {
    let variables = container.env.as_deref().unwrap_or_default();
    // Of several variables of one name, the last counts.
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
        // To the agent, an empty variable is none.
        EnvVar { value: Some(value), .. } if !value.is_empty() => Declared::Here(index, value),
        _ => Declared::Nowhere,
    }
}
