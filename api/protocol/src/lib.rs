//! The protocol between the agent in a worker Pod, the controller, the webhook and the kubectl plugin.
//!
//! - the [`labels`] and annotations on JobSets and their child objects,
//! - the names by which the API server serves a JobSet ([`GROUP`], [`VERSION`], [`RESOURCE`]),
//! - the [`agent`]'s environment variables, exit codes, port and path,
//! - the [`epoch`]s of a group and the rule by which a barrier lifts,
//! - the [`step_pattern`] that finds the step in the output of a worker.
//!
//! Its only dependency is the regular expressions of that pattern. The agent runs in every worker Pod, so the size of its binary is paid
//! thousands of times.

pub mod agent;
pub mod epoch;
pub mod labels;
pub mod step_pattern;

/// API group of JobSet.
pub const GROUP: &str = "jobset.x-k8s.io";
/// API version of JobSet that this project serves.
pub const VERSION: &str = "v1alpha2";
/// Plural name of the resource JobSet, as requests name it.
pub const RESOURCE: &str = "jobsets";
/// Value of `spec.failurePolicy.restartStrategy` of a JobSet that restarts in place (KEP-467).
pub const IN_PLACE_RESTART: &str = "InPlaceRestart";
/// Value of `status.terminalState` of a JobSet that has failed.
pub const FAILED: &str = "Failed";
/// Name of the Lease that the leading controller holds. It is the Go JobSet's name, so that one of both leads.
pub const LEASE: &str = "6d4f6a47.jobset.x-k8s.io";
