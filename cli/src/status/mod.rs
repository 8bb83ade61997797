//! `status`: a tree of a JobSet's replicatedJobs, Jobs and Pods, or a list of JobSets.
//!
//! [`report`] makes a report from the objects, [`render`] makes its text. `-o json` is the report itself.

mod barrier;
mod list;
mod pod;
mod render;
mod report;
mod state;
mod workers;

pub use barrier::{Barrier, Epochs, PodBarrier};
pub use list::{JobSetList, JobSetSummary, list};
pub use pod::{PodNode, epoch};
pub(crate) use pod::{ended, is_agent, last_words, restarts_in_place};
pub use report::{JobNode, JobSetTree, ReplicatedJobNode, RestartCount, is_own, own, report};
pub use state::{JobSetState, jobs, queue, state};
pub use workers::Workers;
