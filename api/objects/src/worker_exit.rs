//! How a supervised worker ended, as its agent reports it.

use std::collections::BTreeMap;

use jobset_protocol::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::{Deserialize, Serialize};

/// The end of a supervised worker: value of the annotation [`labels::WORKER_EXIT`], as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerExit {
    pub epoch: i32,
    /// Exit code. For a signal, 128 and the number of the signal.
    pub code: i32,
    /// Number of the signal that ended the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why the kernel has killed it or a process of it, in the kubelet's word: `OOMKilled`. Else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<MicroTime>,
    /// The last lines of its output, of both streams, at most 4 KiB.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl WorkerExit {
    /// Reads the annotation of a Pod. `None` if it is absent or malformed.
    pub fn of(annotations: &BTreeMap<String, String>) -> Option<Self> {
        serde_json::from_str(annotations.get(labels::WORKER_EXIT)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<WorkerExit> {
        WorkerExit::of(&BTreeMap::from([(labels::WORKER_EXIT.to_owned(), text.to_owned())]))
    }

    #[test]
    fn worker_exit_is_read_as_written() {
        let exit = WorkerExit {
            epoch: 3,
            code: 137,
            signal: Some(9),
            reason: "OOMKilled".to_owned(),
            finished_at: Some(MicroTime("2026-01-01T00:00:00.5Z".parse().unwrap())),
            message: "loss is NaN".to_owned(),
        };
        let text = serde_json::to_string(&exit).unwrap();
        assert_eq!(
            text,
            r#"{"epoch":3,"code":137,"signal":9,"reason":"OOMKilled","finishedAt":"2026-01-01T00:00:00.500000Z","message":"loss is NaN"}"#
        );
        assert_eq!(read(&text), Some(exit));
        let earlier = r#"{"epoch":3,"code":7,"message":"loss is NaN"}"#;
        assert_eq!(serde_json::to_string(&read(earlier)).unwrap(), earlier);
    }

    #[test]
    fn worker_exit_malformed_is_none() {
        for text in ["", "7", "{}", r#"{"epoch":1}"#, r#"{"epoch":1,"code":1e99}"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
