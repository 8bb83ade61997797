//! The Helm chart and the kustomizations: the same objects, from one source; and the alerts that come with them.

mod alerts;
mod certificates;
mod docs;
mod helm;
mod install;
mod leftovers;
mod refused;
mod render;
mod stream;
mod traffic;
mod values;

pub(crate) use certificates::reviewed_throughout;
pub(crate) use traffic::check_network_policies;
