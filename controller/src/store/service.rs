//! What the rules read of a Service.

use k8s_openapi::api::core::v1::Service;

use super::Versioned;
use super::job::controller_uid;

/// A Service, reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceView {
    /// resourceVersion.
    pub version: u64,
    /// UID of the object that controls it.
    pub controller_uid: Option<String>,
}

impl ServiceView {
    /// Reduces a Service.
    pub fn of(service: &Service) -> Self {
        Self { version: super::version(service), controller_uid: controller_uid(service) }
    }
}

impl Versioned for ServiceView {
    fn version(&self) -> u64 {
        self.version
    }
}
