//! What the rules read of a Service.

use k8s_openapi::api::core::v1::Service;

use super::Versioned;

/// A Service, reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceView {
    /// resourceVersion.
    pub version: u64,
}

impl ServiceView {
    /// Reduces a Service.
    pub fn of(service: &Service) -> Self {
        Self { version: super::version(service) }
    }
}

impl Versioned for ServiceView {
    fn version(&self) -> u64 {
        self.version
    }
}
