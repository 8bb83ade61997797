//! How a supervised worker ended, as its agent tells the controller and the kubelet.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::annotation::Annotation;
use crate::termination_log::{self, end_of};

/// Longest message in the annotation, in bytes of JSON.
const LONGEST_MESSAGE: usize = 4096;
/// The kubelet's reason of a container in which the kernel has killed a process for want of memory.
const OOM_KILLED: &str = "OOMKilled";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessEnd {
    /// Exit code, or 128 plus the number of the signal that ended the process.
    pub code: u8,
    pub signal: Option<i32>,
    /// Whether the kernel has killed a process of the container for want of memory while the worker ran.
    pub out_of_memory: bool,
    /// When the process was reaped.
    pub at: Timestamp,
}

/// The end of a worker that the agent did not ask for.
#[derive(Debug)]
pub struct WorkerExit {
    /// The annotation `jobset.sigs.k8s.io/worker-exit`.
    pub annotation: Arc<Annotation>,
    termination_message: String,
}

impl WorkerExit {
    /// The end of a worker of this epoch, with the last lines of its output.
    pub fn new(epoch: i32, end: ProcessEnd, lines: &str) -> Self {
        let ProcessEnd { code, signal, out_of_memory, at } = end;
        let at = Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at);
        let mut exit = json!({"epoch": epoch, "code": code, "finishedAt": at.to_string()});
        if let Some(signal) = signal {
            exit["signal"] = signal.into();
        }
        if out_of_memory {
            exit["reason"] = OOM_KILLED.into();
        }
        exit["message"] = Value::from(end_of(lines, LONGEST_MESSAGE, |character| match character {
            '"' | '\\' | '\n' | '\t' => 2,
            _ => character.len_utf8(),
        }));
        let reason = if out_of_memory { format!(" ({OOM_KILLED})") } else { String::new() };
        let separator = if lines.is_empty() { "" } else { ": " };
        Self {
            annotation: Arc::new(Annotation::new(exit.to_string())),
            termination_message: format!("worker exited with code {code}{reason}{separator}{lines}"),
        }
    }

    /// Writes the termination message of the container, unless the worker has written one.
    pub fn write_termination_message(&self) {
        termination_log::write(&self.termination_message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotation(lines: &str) -> String {
        let at = "2026-01-01T00:00:00.5Z".parse().unwrap();
        let end = ProcessEnd { code: 137, signal: Some(9), out_of_memory: true, at };
        WorkerExit::new(3, end, lines).annotation.value().to_owned()
    }

    #[test]
    fn annotation_is_that_of_the_protocol() {
        let expected = json!({"epoch": 3, "code": 137, "signal": 9, "reason": "OOMKilled",
            "finishedAt": "2026-01-01T00:00:00.5Z", "message": "loss is \"NaN\""});
        assert_eq!(serde_json::from_str::<Value>(&annotation("loss is \"NaN\"")).unwrap(), expected);
    }

    #[test]
    fn annotation_of_hostile_lines_is_bounded() {
        for line in ["\"", "\\", "\n", "x", "\u{fc}", "\u{1f600}"] {
            let annotation = annotation(&line.repeat(10_000));
            assert!((3500..4300).contains(&annotation.len()), "{line:?}: {}", annotation.len());
        }
    }
}
