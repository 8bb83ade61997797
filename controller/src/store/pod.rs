//! What the rules read of a Pod.

use jobset_api::labels;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::Versioned;
use super::job::{controller, number};

/// A Pod, reduced.
#[derive(Clone, Debug, PartialEq)]
pub struct PodView {
    /// Name of the Pod.
    pub name: String,
    /// resourceVersion.
    pub version: u64,
    /// UID of its Job.
    pub job_uid: Option<String>,
    /// Completion index in its Job.
    pub index: Option<i32>,
    /// What its agent has reported.
    pub epoch: Epoch,
    /// Phase.
    pub phase: PodPhase,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether a container other than the init containers and sidecars runs.
    pub worker_runs: bool,
    /// When it was created.
    pub created: Timestamp,
}

/// The annotation [`labels::EPOCH`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Epoch {
    /// Not reported yet.
    Absent,
    /// Reported.
    Reported(i32),
    /// Not a number: counts as no report.
    Malformed(String),
}

/// Phase of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Pending, Running or Unknown.
    Open,
    /// Succeeded.
    Succeeded,
    /// Failed.
    Failed,
}

impl PodView {
    /// Reduces a Pod.
    pub fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let workers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        Self {
            name: pod.name_any(),
            version: super::version(pod),
            job_uid: controller(pod).map(|job| job.uid),
            index: number(pod.annotations(), labels::COMPLETION_INDEX),
            epoch: Epoch::of(pod.annotations().get(labels::EPOCH)),
            phase: match status.and_then(|status| status.phase.as_deref()) {
                Some("Succeeded") => PodPhase::Succeeded,
                Some("Failed") => PodPhase::Failed,
                _ => PodPhase::Open,
            },
            deleting: pod.metadata.deletion_timestamp.is_some(),
            worker_runs: workers.iter().any(runs),
            created: pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        }
    }

    /// Whether the Pod can still fill its slot: it has not ended, and if it is being deleted, its worker still runs. One
    /// that is deleted while it waits at the barrier will never pass it.
    pub fn fills_its_slot(&self) -> bool {
        self.phase == PodPhase::Open && (!self.deleting || self.worker_runs)
    }
}

impl Epoch {
    fn of(annotation: Option<&String>) -> Self {
        match annotation {
            None => Self::Absent,
            Some(text) => text.parse().map_or_else(|_| Self::Malformed(text.clone()), Self::Reported),
        }
    }
}

impl Versioned for PodView {
    fn version(&self) -> u64 {
        self.version
    }
}

fn runs(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}
