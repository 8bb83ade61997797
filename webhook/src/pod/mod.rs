//! Exclusive placement: each Job of a JobSet alone in one topology domain (a rack, say).
//!
//! ```text
//! Pod --> placement (pure): leader, follower, or nothing to do
//!           leader:    keeps away from Pods of other Jobs, and is admitted
//!           follower:  lookup (I/O) --> domain of its leader, or a refusal that says why there is none
//! ```
//!
//! The Pod with completion index 0 leads: the scheduler finds a free domain for it. The others are sent there by node
//! selector, which costs the scheduler next to nothing. [`leaders`] holds what is known of leaders, [`lookup`] learns it
//! and waits for it, [`domains`] remembers where nodes are, and [`refusal`] tells people.

use k8s_openapi::api::core::v1::Pod;
use kube::core::admission::Operation;

pub mod domains;
pub mod leaders;
pub mod lookup;
pub mod placement;
pub mod refusal;

use placement::Role;
use refusal::Refusal;

use crate::wire::AdmissionRequest;

/// The role of the Pod that is created, or `None` where placement is not asked for.
pub fn role(request: &AdmissionRequest<Pod>) -> Result<Option<Role>, Refusal> {
    let is_created = request.operation == Operation::Create && request.is_whole();
    let Some(pod) = request.object().filter(|_| is_created) else { return Ok(None) };
    placement::role(pod, request.namespace.as_deref().unwrap_or_default()).map_err(Refusal::Invalid)
}
