//! What the worker writes down: one JSON object a line, each line one write to a file opened for appending, so that the
//! containers of a Pod can share it and a killed one leaves no half line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::config::Config;

pub(crate) struct Journal {
    file: Option<File>,
    identity: Map<String, Value>,
    /// Held for ever by whoever ends the process, so that there is one exit line.
    ending: Mutex<()>,
}

impl Journal {
    /// Opens the journal, and counts how often this Pod's worker was started before.
    pub(crate) fn open(config: &Config) -> io::Result<Self> {
        let file = match &config.journal {
            None => None,
            Some(path) => {
                path.parent().map(fs::create_dir_all).transpose()?;
                Some(OpenOptions::new().append(true).create(true).open(path)?)
            }
        };
        let boot = config.journal.as_deref().map_or(Ok(0), starts)?;
        let mut identity = Map::new();
        for (key, value) in [("pod", &config.pod), ("uid", &config.uid), ("node", &config.node), ("ip", &config.ip)] {
            identity.insert(key.to_owned(), json!(value));
        }
        identity.insert("epoch".to_owned(), json!(config.epoch));
        identity.insert("boot".to_owned(), json!(boot));
        Ok(Self { file, identity, ending: Mutex::new(()) })
    }

    /// Who this container is.
    pub(crate) fn identity(&self) -> Value {
        Value::Object(self.identity.clone())
    }

    pub(crate) fn write(&self, event: &str, data: &Value) {
        let mut line = Map::new();
        line.insert("event".to_owned(), json!(event));
        line.insert("time".to_owned(), json!(now()));
        line.extend(self.identity.clone());
        if let Value::Object(data) = data {
            line.extend(data.clone());
        }
        let line = format!("{}\n", Value::Object(line));
        if let Some(mut file) = self.file.as_ref()
            && let Err(error) = file.write_all(line.as_bytes())
        {
            eprintln!("jobset-test-worker: cannot write the journal: {error}");
        }
        // A reader of the log that went away must not end the worker.
        let _ = io::stdout().write_all(line.as_bytes());
    }

    /// Writes the exit line. Whoever holds the guard must end the process; others wait here until it does.
    pub(crate) fn begin_exit(&self, code: u8, cause: &str) -> MutexGuard<'_, ()> {
        let guard = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        self.write("exit", &json!({ "code": code, "cause": cause }));
        guard
    }
}

/// How many start lines the file has.
fn starts(path: &Path) -> io::Result<usize> {
    let lines = fs::read_to_string(path)?;
    let started = |line: &&str| serde_json::from_str::<Value>(line).is_ok_and(|line| line["event"] == "start");
    Ok(lines.lines().filter(started).count())
}

/// Unix time in seconds, to the millisecond.
fn now() -> f64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}
