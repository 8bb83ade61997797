//! The ledger: where the time of a JobSet went.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::LaterFields;

/// Where the time of a JobSet went. Each moment is in one bucket; the sums and the time since `since` add up to the life of the
/// JobSet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// bucket is the one that the JobSet is in. One of:
    ///
    /// - Suspended: it is suspended.
    /// - Scheduling: Pods are missing, or have no node.
    /// - Starting: Pods have nodes, and workers have not started.
    /// - Running: workers run.
    /// - Stalled: workers run, and none makes progress.
    /// - Restarting: the group restarts.
    /// - Waiting: the group waits before it restarts (`restartBackoff`).
    /// - Finished: it has completed or failed.
    pub bucket: LedgerBucket,
    /// since is up to when the sums count. The time since then belongs to bucket.
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub since: MicroTime,
    /// milliseconds are the sums of the buckets.
    #[serde(default)]
    pub milliseconds: LedgerTimes,
    /// lastAddition is what the last write has added to a sum: the first of what is taken back if the clock of the leader was ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_addition: Option<LedgerAddition>,
    /// redoneMilliseconds is the part of the running time whose steps a restart lost, so that they are done again. It is estimated
    /// from the steps and the time of their epoch.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub redone_milliseconds: i64,
    /// redoneSteps is the number of steps that restarts lost: those after the last step that a checkpoint declared.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub redone_steps: i64,
    /// Fields of a later release, which come back as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

/// What a JobSet spends its time with. A bucket of a later release is read as [`LedgerBucket::Waiting`]: it must not keep the JobSet
/// from being read, and work that is not known is not counted as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum LedgerBucket {
    Suspended,
    Scheduling,
    Starting,
    Running,
    Stalled,
    Restarting,
    Finished,
    #[serde(other)]
    Waiting,
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
    /// Buckets of a later release, which come back as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

/// What a write has added to the sum of a bucket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerAddition {
    /// bucket is the one whose sum has grown. One of:
    ///
    /// - Suspended: milliseconds.suspended.
    /// - Scheduling: milliseconds.scheduling.
    /// - Starting: milliseconds.starting.
    /// - Running: milliseconds.running.
    /// - Stalled: milliseconds.stalled.
    /// - Restarting: milliseconds.restarting.
    /// - Waiting: milliseconds.waiting.
    /// - Finished: none, the JobSet has ended.
    pub bucket: LedgerBucket,
    /// milliseconds is by how much.
    #[schemars(range(min = 0))]
    pub milliseconds: i64,
    /// Fields of a later release, which come back as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

impl Ledger {
    /// When the sums began: when the JobSet was created, or when a controller that keeps the ledger first saw it. The time since
    /// then is in the sums, and, from `since` on, in `bucket`.
    pub fn began(&self) -> Timestamp {
        let counted = SignedDuration::from_millis(self.milliseconds.sum());
        self.since.0.saturating_sub(counted).unwrap_or(Timestamp::MIN)
    }

    /// The times of the buckets at `now`, those since the last write included. The time after the end is in none.
    pub fn at(&self, now: Timestamp) -> LedgerTimes {
        let mut times = self.milliseconds.clone();
        let since = now.duration_since(self.since.0).as_millis().max(0);
        if let Some(time) = times.of_mut(self.bucket) {
            *time = time.saturating_add(i64::try_from(since).unwrap_or(i64::MAX));
        }
        times
    }
}

impl LedgerBucket {
    /// Buckets in which a JobSet spends time, in the order in which people read them.
    pub const TIMED: [Self; 7] = [
        Self::Running,
        Self::Stalled,
        Self::Restarting,
        Self::Waiting,
        Self::Starting,
        Self::Scheduling,
        Self::Suspended,
    ];

    /// Its name in output and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Suspended => "suspended",
            Self::Scheduling => "scheduling",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stalled => "stalled",
            Self::Restarting => "restarting",
            Self::Waiting => "waiting",
            Self::Finished => "finished",
        }
    }
}

impl LedgerTimes {
    /// The time in this bucket; 0 for that of the end.
    pub fn of(&self, bucket: LedgerBucket) -> i64 {
        match bucket {
            LedgerBucket::Suspended => self.suspended,
            LedgerBucket::Scheduling => self.scheduling,
            LedgerBucket::Starting => self.starting,
            LedgerBucket::Running => self.running,
            LedgerBucket::Stalled => self.stalled,
            LedgerBucket::Restarting => self.restarting,
            LedgerBucket::Waiting => self.waiting,
            LedgerBucket::Finished => 0,
        }
    }

    /// The same, to change it. `None` for that of the end, which lasts for ever.
    pub fn of_mut(&mut self, bucket: LedgerBucket) -> Option<&mut i64> {
        Some(match bucket {
            LedgerBucket::Suspended => &mut self.suspended,
            LedgerBucket::Scheduling => &mut self.scheduling,
            LedgerBucket::Starting => &mut self.starting,
            LedgerBucket::Running => &mut self.running,
            LedgerBucket::Stalled => &mut self.stalled,
            LedgerBucket::Restarting => &mut self.restarting,
            LedgerBucket::Waiting => &mut self.waiting,
            LedgerBucket::Finished => return None,
        })
    }

    /// All of them together, and those of a later release.
    pub fn sum(&self) -> i64 {
        let known = LedgerBucket::TIMED.into_iter().map(|bucket| self.of(bucket));
        known.chain(self.later.values().filter_map(Value::as_i64)).fold(0, i64::saturating_add)
    }
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_bucket_of_later_release_add_up() {
        let times: LedgerTimes = serde_json::from_str(r#"{"running": 5, "checkpointing": 2, "note": "x"}"#).unwrap();
        assert_eq!((times.running, times.sum()), (5, 7));
    }

    #[test]
    fn ledger_with_bucket_of_later_release_is_read() {
        let read = |bucket: &str| {
            let text = format!(r#"{{"bucket": "{bucket}", "since": "2026-01-01T00:00:00.000000Z"}}"#);
            serde_json::from_str::<Ledger>(&text).unwrap().bucket
        };
        let buckets = ["Running", "Waiting", "Finished", "Checkpointing"].map(read);
        let waiting = LedgerBucket::Waiting;
        assert_eq!(buckets, [LedgerBucket::Running, waiting, LedgerBucket::Finished, waiting]);
    }
}
