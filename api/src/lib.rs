//! The JobSet API: types, names and rules that two or more programs of this project share.
//!
//! - the types of `jobset.x-k8s.io/v1alpha2` ([`JobSet`], [`JobSetSpec`], [`JobSetStatus`]),
//! - the [`labels`] and annotations on every child object, and the [`names`] of those objects,
//! - the [`effective`] values of fields that may be absent,
//! - the [`conditions`] of a JobSet and how to set one,
//! - the [`RestartBudget`] that limits its restarts, the [`RestartBackoff`] between them, and the [`RestartRequest`]
//!   by which somebody asks for one,
//! - the feature [`gates`], and which clusters can restart Pods [`in_place`],
//! - what the API says of bad, cordoned and lost [`nodes`],
//! - the [`agent`] in a Pod and its environment variables,
//! - the [`last_words`] of a container that has failed,
//! - the [`restart_rules`] of a container, in the names of KEP-467 and of Kubernetes,
//! - the [`defaults`] of a new JobSet, the [`injection`] of the agent into its Pods, and how an update that omits them
//!   gets them back ([`restore`]),
//! - the [`validation`] of a JobSet,
//! - the [`message_pattern`]s that match the messages of failed Jobs,
//! - the [`weight`] of an object: the memory that it takes.
//!
//! Everything here is a value or a pure function over values. Nothing here talks to an API server.

pub mod agent;
mod agent_stream;
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
pub mod last_words;
mod ledger;
mod limits;
pub mod message_pattern;
pub mod names;
pub mod nodes;
mod policy;
mod progress;
pub mod quantity;
mod restart_backoff;
pub mod restart_request;
pub mod restart_rules;
pub mod restore;
mod status;
mod syntax;
pub mod validation;
mod volume;
pub mod weight;

pub mod schema;

pub use agent_stream::AgentStreamStatus;
pub use budget::{RestartBudget, Scope};
pub use job_template::{JobTemplate, JobTemplateSpec, PodFailurePolicy, PodFailurePolicyRule};
pub use jobset::{Coordinator, DependsOn, DependsOnStatus, JobSet, JobSetSpec, Network, ReplicatedJob};
pub use jobset_protocol::{GROUP, LEASE, VERSION, epoch, labels};
pub use ledger::{Ledger, LedgerAddition, LedgerBucket, LedgerTimes};
pub use limits::JobSetLimits;
pub use nodes::{AvoidNodes, AvoidedNode, LeaveCordoned, NodeStrike};
pub use policy::{
    FailurePolicy, FailurePolicyAction, FailurePolicyRule, Operator, RestartStrategy, StartupPolicy,
    StartupPolicyOrder, SuccessPolicy,
};
pub use progress::{
    EndedEpoch, Evidence, GroupProgress, OnStall, ProcessEvidence, ProgressReport, ReplicatedJobProgress, Stall,
    StallAfter,
};
pub use restart_backoff::{EffectiveBackoff, RestartBackoff};
pub use restart_request::{HandledRestartRequest, RestartRequest};
pub use status::{JobSetStatus, LaterFields, RecentRestart, ReplicatedJobStatus};
pub use syntax::{is_dns1123_label, is_dns1123_subdomain, is_label_key};
pub use volume::{RetentionPolicy, VolumeClaimPolicy, VolumeRetentionPolicy};
