//! The JobSet API: what two deployables must agree on.
//!
//! - the types of `jobset.x-k8s.io/v1alpha2` ([`JobSet`], [`JobSetSpec`], [`JobSetStatus`]),
//! - the [`labels`] and annotations on every child object, and the [`names`] of those objects,
//! - the [`effective`] values of fields that may be absent,
//! - the [`conditions`] of a JobSet and how one is set,
//! - the [`RestartBudget`] that its restarts spend,
//! - the feature [`gates`], and which clusters can restart Pods [`in_place`],
//! - where the [`agent`] is in a Pod, and what it is told there,
//! - the [`restart_rules`] of a container, in the seeds' words and in those of Kubernetes,
//! - the [`defaults`] of a new JobSet, the [`injection`] of the agent into its Pods, and what an update that leaves them
//!   out gets back ([`restore`]),
//! - the [`validation`] of every JobSet,
//! - the [`message_pattern`]s of failed Jobs.
//!
//! Everything here is a value or a pure function over values. Nothing here talks to an API server.

pub mod agent;
mod budget;
pub mod conditions;
pub mod defaults;
pub mod dialect;
pub mod effective;
pub mod entries;
pub mod event;
mod field;
pub mod gates;
pub mod in_place;
pub mod injection;
mod job_template;
mod jobset;
pub mod labels;
pub mod message_pattern;
pub mod names;
pub mod partial;
mod policy;
mod quantity;
pub mod restart_rules;
pub mod restore;
mod status;
mod syntax;
pub mod validation;
mod volume;

pub mod schema;

pub use budget::{RestartBudget, Scope};
pub use job_template::{JobTemplate, JobTemplateSpec, PodFailurePolicy, PodFailurePolicyRule};
pub use jobset::{Coordinator, DependsOn, DependsOnStatus, JobSet, JobSetSpec, Network, ReplicatedJob};
pub use policy::{
    FailurePolicy, FailurePolicyAction, FailurePolicyRule, Operator, RestartStrategy, StartupPolicy,
    StartupPolicyOrder, SuccessPolicy,
};
pub use status::{JobSetStatus, ReplicatedJobStatus};
pub use volume::{RetentionPolicy, VolumeClaimPolicy, VolumeRetentionPolicy};

/// API group of JobSet.
pub const GROUP: &str = "jobset.x-k8s.io";
/// API version of JobSet that this project serves.
pub const VERSION: &str = "v1alpha2";
