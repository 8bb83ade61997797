//! What was seen of the cluster.

use jobset_api::{JobSet, JobSetStatus, RestartStrategy, conditions};
use jobset_objects::{PartialJob, PartialPod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use crate::status::Epochs;

/// What one may not be allowed to see.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Readable<T> {
    /// Nobody may tell us, or nobody was asked.
    #[default]
    Unknown,
    /// So it is.
    Seen(T),
}

/// The controller's Lease.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseSeen {
    /// Its namespace.
    pub namespace: String,
    /// Who holds it.
    pub holder: Option<String>,
    /// When it was renewed last.
    pub renewed: Option<Timestamp>,
    /// For how many seconds that holds.
    pub seconds: i32,
}

/// What was seen of a JobSet and what concerns it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The JobSet.
    pub jobset: JobSet,
    /// Its Jobs.
    pub jobs: Vec<PartialJob>,
    /// Its Pods.
    pub pods: Vec<PartialPod>,
    /// Warnings about Jobs of its namespace whose Pods could not be created.
    pub refusals: Vec<Event>,
    /// The controller's Leases, in any namespace.
    pub leases: Readable<Vec<LeaseSeen>>,
    /// Whether any admission webhook looks at JobSets.
    pub admission: Readable<bool>,
    /// When all this was seen.
    pub now: Timestamp,
}

impl Facts {
    /// A command of `kubectl` that looks where the JobSet is, whatever the namespace of the context.
    pub(super) fn kubectl(&self, command: &str) -> String {
        format!("kubectl {command} -n {}", self.jobset.namespace().unwrap_or_default())
    }

    /// The status; an empty one where the controller has not written any.
    pub(super) fn status(&self) -> JobSetStatus {
        self.jobset.status.clone().unwrap_or_default()
    }

    /// The condition of this type, if it is true.
    pub(super) fn condition(&self, type_: &str) -> Option<&Condition> {
        let all = &self.jobset.status.as_ref()?.conditions;
        all.iter().find(|condition| condition.type_ == type_ && conditions::is_true(all, type_))
    }

    /// The epochs, if it restarts in place.
    pub(super) fn epochs(&self) -> Option<Epochs> {
        let in_place = self.jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart;
        let status = self.jobset.status.as_ref();
        in_place.then(|| Epochs {
            synced: status.map_or(0, |status| status.synced_epoch),
            deprecated: status.map_or(0, |status| status.deprecated_epoch),
        })
    }
}
