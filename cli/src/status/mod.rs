//! `status`: a JobSet as a tree of its replicatedJobs, Jobs and Pods, or all JobSets in a list.
//!
//! [`report`] makes a value of the objects, [`render`] makes text of it; `-o json` is the value itself.

mod barrier;
mod fold;
mod list;
mod pod;
mod render;
mod report;
mod state;
#[cfg(test)]
mod tests;

pub use barrier::{Barrier, Epochs, PodBarrier};
pub use list::{List, list};
pub(crate) use pod::ended;
pub use pod::{PodNode, epoch};
pub use report::{Group, JobNode, Restarts, Status, report};
pub use state::{State, jobs, state};
