//! Partial Pods, Jobs and Nodes: the fields that controller, webhook and kubectl plugin read.
//!
//! The parser skips every other field. A Pod of 9 kB costs it a few allocations, and the programs read thousands of Pods.
//! An absent field has its default value. Tenants write these objects, up to 1.5 MB each: none takes more than a small multiple of
//! its JSON in memory, whatever it is full of.

mod affinity;
mod condition;
mod job;
mod kept;
mod metadata;
mod node;
mod pod;
mod refusal;
#[cfg(any(test, feature = "testing"))]
mod testing;
mod worker_exit;

pub use affinity::{HOSTNAME, NODE_NAME, Pin};
pub use condition::PartialCondition;
pub use job::{PartialJob, PartialJobSpec, PartialJobStatus, PartialPodTemplate, PartialTemplateSpec};
pub use kept::CompactMap;
pub use metadata::{PartialMetadata, metadata, owner_job, whole_metadata};
pub use node::{NodeSystemInfo, NodeTaint, PartialNode, PartialNodeSpec, PartialNodeStatus};
pub use pod::{
    ALL_CONTAINERS_RESTARTING, ContainerRunning, ContainerState, ContainerTerminated, ContainerWaiting, JOB_TRACKING,
    PartialContainer, PartialContainerStatus, PartialPod, PartialPodSpec, PartialPodStatus, RESTARTING_ALL_CONTAINERS,
};
pub use refusal::{FAILED_CREATE, last_observed, why_refused};
pub use worker_exit::WorkerExit;
