//! The ledger: where the time of a JobSet went.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::LaterFields;

/// Where the time of a JobSet went. Each moment is in one bucket; the sums and the time since `since` add up to the life of the
/// JobSet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// bucket is the one that the JobSet is in.
    pub bucket: LedgerBucket,
    /// since is up to when the sums count. The time since then belongs to bucket.
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub since: MicroTime,
    /// milliseconds are the sums of the buckets.
    #[serde(default)]
    pub milliseconds: LedgerTimes,
    /// redoneMilliseconds is the part of the running time in which steps were done again that an earlier epoch had done.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub redone_milliseconds: i64,
    /// redoneSteps is the number of steps that were done again: those after the last step that a checkpoint declared.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub redone_steps: i64,
    /// Fields of a later release, which come back as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

/// What a JobSet spends its time with. One of:
///
/// - Suspended: it is suspended.
/// - Scheduling: Pods are missing, or have no node.
/// - Starting: Pods have nodes, and workers have not started.
/// - Running: workers run.
/// - Stalled: workers run, and none makes progress.
/// - Restarting: the group restarts.
/// - Waiting: the group waits before it restarts (`restartBackoff`).
/// - Finished: it has completed or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum LedgerBucket {
    Suspended,
    Scheduling,
    Starting,
    Running,
    Stalled,
    Restarting,
    Waiting,
    Finished,
}

/// Time in each bucket, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LedgerTimes {
    /// suspended is the time in which the JobSet was suspended.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub suspended: i64,
    /// scheduling is the time in which Pods were missing, or had no node.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub scheduling: i64,
    /// starting is the time in which Pods had nodes, and workers had not started.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub starting: i64,
    /// running is the time in which workers ran.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub running: i64,
    /// stalled is the time in which workers ran, and none made progress.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub stalled: i64,
    /// restarting is the time that restarts took.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub restarting: i64,
    /// waiting is the time of the waits before restarts.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub waiting: i64,
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(value: &i64) -> bool {
    *value == 0
}
