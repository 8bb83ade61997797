//! What the rules read of a PersistentVolumeClaim.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::job::{ControllerRef, controller};
use super::{Versioned, version};

/// A PersistentVolumeClaim, reduced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimView {
    /// resourceVersion.
    pub version: u64,
    /// The object that controls it; none if it outlives its JobSet.
    pub controller: Option<ControllerRef>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl ClaimView {
    /// Reduces a claim.
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        Self {
            version: version(claim),
            controller: controller(claim),
            deleting: claim.metadata.deletion_timestamp.is_some(),
        }
    }
}

impl Versioned for ClaimView {
    fn version(&self) -> u64 {
        self.version
    }
}
