//! The store: what is observed of the cluster, one [`Entry`] for each JobSet, as one pure value.
//!
//! Events of watches go in ([`Store::apply`]). The rules read one JobSet at a time ([`Observed`]).

mod cluster;
mod decisions;
pub mod dialect;
mod entry;
mod event;
mod job;
mod kinds;
pub mod members;
mod nodes;
mod observed;
pub mod pods;
mod priority;
mod ranges;
mod room;
mod store;
mod stored;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod tests;
mod verdict;

pub use cluster::Cluster;
pub use decisions::{differs_in_decisions, without_counts};
pub use entry::{Entry, PodWarning};
pub use event::{OwnedView, PartialNamespace, View, WatchEvent};
pub use job::{ControllerRef, Finished, JobView, controller};
pub use kinds::{Key, Kind, Versions, version};
pub use nodes::NodeView;
pub use observed::{Observed, PodOnNode, StreamAgents};
pub use priority::PriorityClasses;
pub use ranges::Ranges;
pub use store::{Change, Changes, MemoryLimits, Store};
pub use stored::{JobSetHead, StoredJobSet};
pub use verdict::{Findings, custom_reason};
