//! Progress: what agents report of it, what the status keeps, and the values of its annotations.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::{LEAST_STALL, LONGEST_STALL};
use crate::status::is_zero;
use crate::{LaterFields, labels};

/// For how long a worker may make no progress: the value of [`STALL_AFTER`](labels::STALL_AFTER).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallAfter {
    /// Ten times the longest pause between steps that the JobSet has survived. At least [`STALL_FIRST`](labels::STALL_FIRST), until
    /// the worker is known to declare all its phases: then at least a minute.
    Auto,
    After(Duration),
}

impl StallAfter {
    /// The value of the annotation; `None` for another text.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "auto" {
            return Some(Self::Auto);
        }
        duration(text).map(Self::After)
    }
}

/// A duration from [`LEAST_STALL`] to [`LONGEST_STALL`].
pub(crate) fn duration(text: &str) -> Option<Duration> {
    Duration::try_from(text.parse::<SignedDuration>().ok()?)
        .ok()
        .filter(|after| (LEAST_STALL..=LONGEST_STALL).contains(after))
}

/// What follows when no worker makes progress. The names are the values of [`ON_STALL`](labels::ON_STALL).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStall {
    /// A condition, an Event and a metric say so.
    #[default]
    Notify,
    /// The group restarts in place, and the restart counts.
    Restart,
}

impl OnStall {
    /// The value of the annotation; `None` for another text.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Notify" => Some(Self::Notify),
            "Restart" => Some(Self::Restart),
            _ => None,
        }
    }
}

/// What an agent reports of its worker: value of the annotation [`PROGRESS`](labels::PROGRESS), and of a report over the stream, as
/// JSON. An agent reports it only once a worker of its Pod has told of progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressReport {
    /// Epoch of the worker that this is about.
    pub epoch: i32,
    /// When the agent wrote it, by the clock of its node. A report over the stream and the annotation are compared by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<MicroTime>,
    /// Highest step of that worker. `None`: it has told of no step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// Last step that a checkpoint of that worker declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<i64>,
    /// Longest pause between steps that a worker of the Pod has survived, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_seconds: Option<u32>,
    /// The worker makes no progress. `None`: it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
}

/// A worker that makes no progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stall {
    /// When it last made some, or when its epoch began.
    pub since: MicroTime,
    /// The phase that it has declared with `phase=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// What it has declared with `in=` to be in, such as a collective operation.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// What the agent saw of its processes.
    #[serde(default)]
    pub evidence: Evidence,
}

/// What a supervisor saw of a worker that makes no progress. A sidecar sees nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Evidence {
    /// The processes of the worker, or the first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessEvidence>,
    /// End of the output of the user's command (`JOBSET_STALL_COMMAND`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// A process of a worker that makes no progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessEvidence {
    pub pid: i32,
    /// Its name in the kernel, at most 15 bytes.
    pub name: String,
    /// Letter of its state, as in `ps`: `R` runs, `S` sleeps, `D` waits for a device, `T` is stopped, `Z` has ended.
    pub state: String,
    /// Function of the kernel in which it waits; empty if it runs, or the kernel does not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wait_channel: String,
    /// Number of the system call that it is in, or `running`; empty if the kernel does not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub system_call: String,
    /// CPU time that it used while the agent looked, in milliseconds.
    pub cpu_milliseconds: u64,
    /// For how long the agent looked, in milliseconds: about five seconds.
    pub looked_milliseconds: u64,
}

impl ProgressReport {
    /// Reads the annotation of a Pod. `None` if it is absent, too long or malformed.
    pub fn of(annotations: &BTreeMap<String, String>) -> Option<Self> {
        Self::parse(annotations.get(labels::PROGRESS)?)
    }

    /// Reads the value of the annotation, or of a report over the stream. `None` if it is too long or malformed.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() <= labels::PROGRESS_BYTES).then(|| serde_json::from_str(text).ok())?
    }
}

/// How far the workers of a JobSet have come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupProgress {
    /// step is the highest step that a worker has told of, in any epoch. If workers of several replicatedJobs tell of steps, step and
    /// the other steps here are those of the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// checkpoint is the last step that a checkpoint declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<i64>,
    /// longestPauseSeconds is the longest pause between two steps that a worker has survived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub longest_pause_seconds: Option<u32>,
    /// restartsWithoutProgress is the number of restarts in a row before which no highest step had risen. A restart is judged when the
    /// next epoch begins: by then, agents have told of the last steps.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub restarts_without_progress: i32,
    /// stepAtRestart is the highest step when the present epoch began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_at_restart: Option<i64>,
    /// checkpointAtRestart is the last step that a checkpoint had declared when the present epoch began: it begins there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_at_restart: Option<i64>,
    /// replicatedJobs are the steps of each replicatedJob whose workers tell of any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub replicated_jobs: Vec<ReplicatedJobProgress>,
    /// endedEpoch is the epoch that a restart has ended, until the next one begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_epoch: Option<EndedEpoch>,
    /// Fields of a later release, which come back as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

/// How far the workers of a replicatedJob have come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicatedJobProgress {
    /// name of the replicatedJob.
    pub name: String,
    /// step is the highest step that a worker of it has told of, in any epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// checkpoint is the last step that a checkpoint of it declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<i64>,
    /// stepAtRestart is its step when the present epoch began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_at_restart: Option<i64>,
    /// checkpointAtRestart is its checkpoint when the present epoch began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_at_restart: Option<i64>,
    /// lastStep is the highest step that a worker of it has told of in endedEpoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_step: Option<i64>,
    /// Fields of a later release, which come back as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

/// The epoch that a restart has ended. When the next one begins, agents have told of its last steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndedEpoch {
    /// epoch is its number.
    #[schemars(range(min = 0))]
    pub epoch: i32,
    /// failed says whether a worker has failed. Else Pods were taken away, or a restart was asked for.
    #[serde(default)]
    pub failed: bool,
    /// began is when it began.
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub began: MicroTime,
    /// worked is until when its workers made progress: until it ended, or they stalled.
    #[schemars(schema_with = "crate::schema::markers::time")]
    pub worked: MicroTime,
    /// Fields of a later release, which come back as they are.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: LaterFields,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::auto("auto", Some(StallAfter::Auto))]
    #[case::seconds("90s", Some(StallAfter::After(Duration::from_secs(90))))]
    #[case::minutes("20m", Some(StallAfter::After(Duration::from_mins(20))))]
    #[case::shortest("5s", Some(StallAfter::After(LEAST_STALL)))]
    #[case::too_short("4s", None)]
    #[case::longest("720h", Some(StallAfter::After(LONGEST_STALL)))]
    #[case::too_long("720h1s", None)]
    #[case::negative("-90s", None)]
    #[case::no_unit("90", None)]
    #[case::other_case("Auto", None)]
    #[case::empty("", None)]
    fn stall_after_is_read(#[case] text: &str, #[case] expected: Option<StallAfter>) {
        assert_eq!(StallAfter::parse(text), expected);
    }

    #[test]
    fn progress_report_is_read_as_written() {
        let report = ProgressReport {
            epoch: 3,
            at: Some(MicroTime("2026-01-01T00:00:20.5Z".parse().unwrap())),
            step: Some(1200),
            checkpoint: Some(1000),
            pause_seconds: Some(600),
            stall: Some(Stall {
                since: MicroTime("2026-01-01T00:00:00.5Z".parse().unwrap()),
                phase: Some("checkpoint".to_owned()),
                within: Some("all_reduce".to_owned()),
                evidence: Evidence {
                    processes: vec![ProcessEvidence {
                        pid: 7,
                        name: "python3".to_owned(),
                        state: "T".to_owned(),
                        wait_channel: "do_signal_stop".to_owned(),
                        system_call: "202".to_owned(),
                        cpu_milliseconds: 10,
                        looked_milliseconds: 5000,
                    }],
                    output: String::new(),
                },
            }),
        };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(text, include_str!("../cases/progress.json").trim());
        assert_eq!(ProgressReport::parse(&text), Some(report));
    }

    #[test]
    fn progress_report_of_later_release_is_read() {
        let report = ProgressReport { epoch: 3, ..ProgressReport::default() };
        assert_eq!(serde_json::to_string(&report).unwrap(), r#"{"epoch":3}"#);
        assert_eq!(ProgressReport::parse(r#"{"epoch":3,"later":{"a":1}}"#), Some(report));
    }

    #[test]
    fn progress_report_torn_or_long_is_none() {
        let long = format!(r#"{{"epoch":3,"later":"{}"}}"#, "x".repeat(labels::PROGRESS_BYTES));
        for text in ["", "7", "{}", r#"{"epoch":3,"st"#, r#"{"epoch":1e99}"#, &long] {
            assert_eq!(ProgressReport::parse(text), None, "{text:.40}");
        }
    }
}
