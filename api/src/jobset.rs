//! The JobSet object and its specification.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job_template::JobTemplate;
use crate::policy::{FailurePolicy, StartupPolicy, SuccessPolicy};
use crate::status::JobSetStatus;
use crate::volume::VolumeClaimPolicy;

/// What the user wants: groups of Jobs that start, fail, restart and succeed together.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "jobset.x-k8s.io",
    version = "v1alpha2",
    kind = "JobSet",
    namespaced,
    status = "JobSetStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct JobSetSpec {
    /// replicatedJobs are the groups of Jobs that form the set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub replicated_jobs: Vec<ReplicatedJob>,

    /// network holds the networking options of the set. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::markers::immutable)]
    pub network: Option<Network>,

    /// successPolicy says when the set has succeeded; without it, when all its Jobs have completed. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::markers::immutable)]
    pub success_policy: Option<SuccessPolicy>,

    /// failurePolicy says what a failure leads to; without it, any failed Job fails the set. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::markers::immutable)]
    pub failure_policy: Option<FailurePolicy>,

    /// startupPolicy says in which order the replicatedJobs start. Deprecated: use dependsOn. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crate::schema::markers::immutable)]
    pub startup_policy: Option<StartupPolicy>,

    /// suspend stops all Pods of the set while it is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// coordinator names one Pod of the set. Its stable network name is put on every Job and Pod as label and
    /// annotation `jobset.sigs.k8s.io/coordinator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<Coordinator>,

    /// managedBy names the controller that is responsible for this JobSet: `jobset.sigs.k8s.io/jobset-controller`, or
    /// nothing, for the JobSet controller itself; any other domain-prefixed path (at most 63 characters) for another,
    /// such as a multi-cluster dispatcher. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,

    /// ttlSecondsAfterFinished deletes the JobSet so many seconds after it completed or failed. Absent: never.
    #[serde(default, rename = "ttlSecondsAfterFinished", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,

    /// volumeClaimPolicies are the persistent volume claims that the set creates and its Pods share. Each must be
    /// mounted, by name, in at least one container. Immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "atomic"), transform = crate::schema::markers::immutable)]
    pub volume_claim_policies: Vec<VolumeClaimPolicy>,
}

/// A number of Jobs made from one template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedJob {
    /// name of the group; part of the names of its Jobs.
    pub name: String,

    /// groupName puts several replicatedJobs into one group, within which their Jobs are numbered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "default"))]
    pub group_name: Option<String>,

    /// template of the Jobs.
    #[schemars(schema_with = "crate::schema::markers::job_template")]
    pub template: JobTemplate,

    /// replicas is the number of Jobs, named `<jobSet.name>-<name>-<job index>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 1))]
    pub replicas: Option<i32>,

    /// dependsOn lists earlier replicatedJobs that must have reached a status before this one is created. Mutually
    /// exclusive with startupPolicy InOrder. Immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]), transform = crate::schema::markers::immutable)]
    pub depends_on: Vec<DependsOn>,
}

/// One dependency on an earlier replicatedJob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DependsOn {
    /// name of the earlier replicatedJob.
    pub name: String,
    /// status that it must have reached.
    pub status: DependsOnStatus,
}

/// Status of a replicatedJob on which another may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DependsOnStatus {
    /// Every Job is ready, succeeded or failed.
    Ready,
    /// Every Job has succeeded.
    Complete,
}

/// Networking options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// enableDNSHostnames gives every Pod the name
    /// `<jobSet.name>-<replicatedJob.name>-<job index>-<pod index>.<subdomain>` through a headless Service. Default true.
    #[serde(default, rename = "enableDNSHostnames", skip_serializing_if = "Option::is_none")]
    pub enable_dns_hostnames: Option<bool>,

    /// subdomain is the name of that Service. Default: the name of the JobSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subdomain: Option<String>,

    /// publishNotReadyAddresses gives Pods their DNS name before they are ready. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish_not_ready_addresses: Option<bool>,
}

/// The Pod that the others meet at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Coordinator {
    /// replicatedJob that holds the coordinator Pod.
    pub replicated_job: String,
    /// jobIndex of its Job in that replicatedJob.
    #[serde(default)]
    pub job_index: i32,
    /// podIndex is its completion index in that Job.
    #[serde(default)]
    pub pod_index: i32,
}
