//! The facts of the cluster that rules look at.

use jobset_api::{JobSet, conditions};
use jobset_objects::{PartialJob, PartialPod};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

/// A JobSet and the objects that may explain its state.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The JobSet.
    pub jobset: JobSet,
    /// Its Jobs.
    pub jobs: Vec<PartialJob>,
    /// Its Pods.
    pub pods: Vec<PartialPod>,
    /// Events about Jobs of its namespace for which the API server refused Pods.
    pub refusals: Vec<Event>,
    /// The controller's Leases, in any namespace; none if the user may not read Leases.
    pub leases: Option<Vec<Lease>>,
    /// Whether an admission webhook is configured for JobSets; none if the user may not read that.
    pub admission: Option<bool>,
    /// When the objects were read.
    pub now: Timestamp,
}

impl Facts {
    /// A `kubectl` command with the namespace of the JobSet.
    pub(super) fn kubectl(&self, command: &str) -> String {
        format!("kubectl {command} -n {}", self.jobset.namespace().unwrap_or_default())
    }

    /// The condition of this type, if it is true.
    pub(super) fn condition(&self, type_: &str) -> Option<&Condition> {
        let all = &self.jobset.status.as_ref()?.conditions;
        all.iter().find(|condition| condition.type_ == type_ && conditions::is_true(all, type_))
    }
}
