//! The two shapes of the agent in a Pod.

/// Where the agent runs in a Pod. The names are the values of [`crate::labels::INJECT_AGENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// As an init container with restartPolicy Always.
    Sidecar,
    /// As the entrypoint of the worker's container.
    Supervisor,
}

impl Shape {
    /// The shape with this name. `None` if the name is unknown.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "Sidecar" => Some(Self::Sidecar),
            "Supervisor" => Some(Self::Supervisor),
            _ => None,
        }
    }
}
