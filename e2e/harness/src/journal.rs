//! The journals of the workers: when each started and ended.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::Deserialize;

/// One line of a worker's journal.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Entry {
    /// `start` or `exit`.
    pub event: String,
    /// Seconds since 1970, by the worker's clock.
    pub time: f64,
    pub pod: String,
    pub uid: String,
    pub node: Option<String>,
    pub ip: Option<String>,
    /// The epoch in its environment, if there is one.
    #[serde(default)]
    pub epoch: Option<i32>,
    /// Exit code, of an `exit`.
    pub code: Option<i32>,
}

pub fn dir(journals: &Path, namespace: &str) -> PathBuf {
    journals.join(namespace)
}

/// All lines of all journals of a namespace, by time.
pub fn read(journals: &Path, namespace: &str) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let files = match fs::read_dir(dir(journals, namespace)) {
        Ok(files) => files,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(entries),
        Err(error) => return Err(error).context("cannot read the folder of the journals"),
    };
    for file in files {
        let path = file?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for line in text.lines() {
            entries.push(serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display()))?);
        }
    }
    entries.sort_by(|a: &Entry, b: &Entry| a.time.total_cmp(&b.time));
    Ok(entries)
}

pub fn starts_after(entries: &[Entry], time: f64) -> Vec<&Entry> {
    entries.iter().filter(|entry| entry.event == "start" && entry.time > time).collect()
}

/// The last time that a worker of this Pod ended.
pub fn last_exit<'a>(entries: &'a [Entry], pod: &str) -> Option<&'a Entry> {
    entries.iter().rfind(|entry| entry.event == "exit" && entry.pod == pod)
}

/// Seconds since 1970, as in [`Entry::time`].
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
