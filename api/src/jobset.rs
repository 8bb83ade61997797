//! The JobSet object and its specification.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job_template::JobTemplate;
use crate::policy::{FailurePolicy, StartupPolicy, SuccessPolicy};
use crate::schema::markers::immutable;
use crate::status::JobSetStatus;
use crate::validation::{AS_CREATED, AS_CREATED_OR_MORE_RESTARTS};
use crate::volume::VolumeClaimPolicy;

/// The desired state: groups of Jobs that start, fail, restart and succeed together.
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
    /// replicatedJobs are the groups of Jobs that form the JobSet. Their names and their order are immutable. While the
    /// JobSet runs, only the number of Jobs and Pods can change, and while it is suspended also where its Pods run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub replicated_jobs: Vec<ReplicatedJob>,

    /// network specifies the DNS names of the Pods. Default: every Pod has one. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = immutable(AS_CREATED))]
    pub network: Option<Network>,

    /// successPolicy specifies when the JobSet succeeds. Default: when all Jobs have completed. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = immutable(AS_CREATED))]
    pub success_policy: Option<SuccessPolicy>,

    /// failurePolicy specifies how the JobSet reacts to failures. Without it, any failed Job fails the JobSet.
    /// Immutable: to allow more restarts while the JobSet runs, set the annotation
    /// `jobset.sigs.k8s.io/additional-restarts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = immutable(AS_CREATED_OR_MORE_RESTARTS))]
    pub failure_policy: Option<FailurePolicy>,

    /// startupPolicy specifies the order in which the replicatedJobs start. Default: all at the same time. Deprecated:
    /// use dependsOn. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = immutable(AS_CREATED))]
    pub startup_policy: Option<StartupPolicy>,

    /// suspend stops the JobSet while it is true: all Jobs are suspended, and their Pods are deleted. False starts them
    /// again; this is not counted as a restart. Default false. Users and queueing systems such as Kueue change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// activeDeadlineSeconds is the number of seconds that the JobSet may be active, from status.startTime on (KEP-1186). When
    /// they have passed, the JobSet fails (`DeadlineExceeded`), and its Jobs that still run are deleted. A suspended JobSet is
    /// not active. The time begins again with a resume, and with a restart of the whole JobSet. Default: no limit. It can
    /// change at any time. Needs the feature gate JobSetActiveDeadlineSeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// coordinator names one Pod by which the Pods of the JobSet find each other. Every Job and Pod gets the stable
    /// network name of this Pod as label and annotation `jobset.sigs.k8s.io/coordinator`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<Coordinator>,

    /// managedBy names the controller that is responsible for this JobSet. Default, and the same:
    /// `jobset.sigs.k8s.io/jobset-controller`. With any other name, such as `kueue.x-k8s.io/multikueue`, the JobSet
    /// controller leaves the JobSet alone; with this one, it derives status.jobsReady and status.groupRestarts from the
    /// counts that Kueue copies. A name is a domain, a slash and a path, at most 63 characters. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,

    /// ttlSecondsAfterFinished is the number of seconds after which a completed or failed JobSet is deleted, with its
    /// Jobs and Pods. 0: at once. Default: never. It can change at any time.
    #[serde(default, rename = "ttlSecondsAfterFinished", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,

    /// volumeClaimPolicies are the persistent volume claims that the JobSet creates and its Pods share. Each Pod that
    /// mounts a claim by its name gets the volume. At least one container must mount each claim. Default: none.
    /// Immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "atomic"), transform = immutable(AS_CREATED))]
    pub volume_claim_policies: Vec<VolumeClaimPolicy>,
}

/// Jobs that are created from one template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedJob {
    /// name of the replicatedJob, unique in the JobSet. It is part of the names of its Jobs and Pods. Immutable.
    pub name: String,

    /// groupName is the name of a group of replicatedJobs, whose Jobs are numbered together: the label
    /// `jobset.sigs.k8s.io/job-group-index` of a Job is its number. Default `default`. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "default"))]
    pub group_name: Option<String>,

    /// template of the Jobs. Every Job of this replicatedJob has the same specification. While the JobSet runs, only
    /// parallelism and completions can change, together, and only if they are equal. While it is suspended, also
    /// labels, annotations, nodeSelector, tolerations and schedulingGates of the Pods, and, with the feature gate
    /// MutablePodResourcesForSuspendedJobSets, requests and limits of their containers.
    #[schemars(schema_with = "crate::schema::markers::job_template")]
    pub template: JobTemplate,

    /// replicas is the number of Jobs. A Job is named `<jobSet.name>-<name>-<job index>`; indexes begin with 0. Default
    /// 1. It can change while the JobSet runs, but only in the last replicatedJob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 1))]
    pub replicas: Option<i32>,

    /// dependsOn lists earlier replicatedJobs that must reach a status before the Jobs of this one are created.
    /// Default: it waits for none. Not together with startupPolicy InOrder or restartStrategy InPlaceRestart.
    /// Immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]), transform = immutable(AS_CREATED))]
    pub depends_on: Vec<DependsOn>,
}

/// One dependency on an earlier replicatedJob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DependsOn {
    /// name of the earlier replicatedJob.
    pub name: String,
    /// status that the earlier replicatedJob must reach. One of:
    ///
    /// - Ready: every Job is ready, has succeeded or has failed.
    /// - Complete: every Job has succeeded.
    pub status: DependsOnStatus,
}

/// The values of [`DependsOn::status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DependsOnStatus {
    Ready,
    Complete,
}

/// Networking options.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// enableDNSHostnames gives every Pod the DNS name `<jobSet.name>-<replicatedJob.name>-<job index>-<pod
    /// index>.<subdomain>`. For this, the controller creates a headless Service. Default true.
    #[serde(default, rename = "enableDNSHostnames", skip_serializing_if = "Option::is_none")]
    pub enable_dns_hostnames: Option<bool>,

    /// subdomain is the last part of the DNS names of the Pods, and the name of the headless Service. Default: the name
    /// of the JobSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subdomain: Option<String>,

    /// publishNotReadyAddresses gives Pods their DNS names before they are ready, so that workers find each other while
    /// they start. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish_not_ready_addresses: Option<bool>,
}

/// The Pod by which the Pods of the JobSet find each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Coordinator {
    /// replicatedJob is the name of the replicatedJob of the coordinator Pod.
    pub replicated_job: String,
    /// jobIndex is the index of the coordinator's Job in that replicatedJob. Default 0.
    #[serde(default)]
    pub job_index: i32,
    /// podIndex is the completion index of the coordinator Pod in that Job. Default 0.
    #[serde(default)]
    pub pod_index: i32,
}
