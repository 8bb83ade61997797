//! What the rules read of a Service.

use k8s_openapi::api::core::v1::Service;

use super::Versioned;
use super::job::{Controller, controller};

/// A Service, reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceView {
    /// resourceVersion.
    pub version: u64,
    /// The object that controls it.
    pub controller: Option<Controller>,
}

impl ServiceView {
    /// Reduces a Service.
    pub fn of(service: &Service) -> Self {
        Self { version: super::version(service), controller: controller(service) }
    }
}

impl Versioned for ServiceView {
    fn version(&self) -> u64 {
        self.version
    }
}
