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
mod seats;

use lookup::Lookup;
use placement::Role;
use refusal::Refusal;

use crate::wire::AdmissionRequest;

/// The Pod as it is to be placed, or `None` where placement is not asked for, or has been carried out already.
///
/// # Errors
/// When the Pod cannot be placed, or cannot be placed yet.
pub async fn mutate(request: &AdmissionRequest<Pod>, lookup: &Lookup) -> Result<Option<Pod>, Refusal> {
    let whole = request.sub_resource.as_deref().unwrap_or_default().is_empty();
    let created = request.operation == Operation::Create && whole;
    let Some(pod) = request.object.as_ref().filter(|_| created) else { return Ok(None) };
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let placed = match placement::role(pod, namespace).map_err(Refusal::Invalid)? {
        None => return Ok(None),
        Some(Role::Leader(leader)) => leader.keep_away(pod),
        Some(Role::Follower(follower)) => follower.follow(pod, lookup.domain(&follower).await?),
    };
    Ok((placed != *pod).then_some(placed))
}
