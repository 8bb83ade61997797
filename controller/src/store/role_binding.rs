//! What the rules read of a RoleBinding.

use k8s_openapi::api::rbac::v1::RoleBinding;

use super::job::{ControllerRef, controller};
use super::{Versioned, version};

/// A RoleBinding, reduced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleBindingView {
    /// resourceVersion.
    pub version: u64,
    /// The object that controls it.
    pub controller: Option<ControllerRef>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl RoleBindingView {
    /// Reduces a RoleBinding.
    pub fn of(binding: &RoleBinding) -> Self {
        Self {
            version: version(binding),
            controller: controller(binding),
            deleting: binding.metadata.deletion_timestamp.is_some(),
        }
    }
}

impl Versioned for RoleBindingView {
    fn version(&self) -> u64 {
        self.version
    }
}
