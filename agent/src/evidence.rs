//! What a supervisor sees of the processes of a worker that makes no progress.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::descendants::{descendants, stat_fields};

/// How long a look at the processes may take, and a command beyond its own limit. It takes milliseconds, unless a disk hangs: then
/// perhaps no program can be started.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// What stands for the output of a command that has not come back.
const STUCK: &str = "(the stall command did not come back: no program can be started, or a disk hangs)";
const MOST_PROCESSES: usize = 16;
/// Longest text of the kernel about a process, in characters.
const WORD_CHARACTERS: usize = 32;
/// Milliseconds of one tick in `/proc`: a hundredth of a second on all architectures that agents run on.
const TICK_MILLISECONDS: u64 = 10;
/// Place of the state after the name in `/proc/PID/stat`, and those of the ticks in user and kernel mode.
const STATE: usize = 0;
const TICKS: [usize; 2] = [11, 12];

/// What was seen of a worker that makes no progress.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Its processes, as the report has them.
    pub processes: Vec<Value>,
    /// Output of the user's command.
    pub output: String,
}

impl Evidence {
    /// Logs everything: a report has room for a part.
    pub fn log(&self) {
        for process in &self.processes {
            tracing::info!(%process, "a process of the worker");
        }
        for line in self.output.lines() {
            tracing::info!(line, "the stall command says");
        }
    }
}

/// Looks, and runs a command that has a limit of its own. What takes too long is left out: the report of a stall waits for it.
pub async fn gather(
    look: impl FnOnce() -> Vec<Value> + Send + 'static,
    command: Option<(impl FnOnce() -> String + Send + 'static, Duration)>,
) -> Evidence {
    let processes = in_time(look, LOOK_LIMIT).await.unwrap_or_default();
    let output = match command {
        Some((command, limit)) => in_time(command, limit + LOOK_LIMIT).await.unwrap_or_else(|| STUCK.to_owned()),
        None => String::new(),
    };
    Evidence { processes, output }
}

/// Does this on another thread. `None` if it takes longer than this: the thread goes on, and nobody waits for it.
pub async fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static, limit: Duration) -> Option<T> {
    timeout(limit, spawn_blocking(work)).await.ok()?.ok()
}

/// The CPU time that each process had used at a time.
#[derive(Debug)]
pub struct FirstLook {
    at: Instant,
    used: HashMap<i32, u64>,
}

impl FirstLook {
    /// Looks at all processes of the worker.
    pub fn now() -> Self {
        let used = descendants().into_iter().filter_map(|pid| Some((pid, ticks(&stat_fields(pid)?))));
        Self { at: Instant::now(), used: used.collect() }
    }
}

/// Looks at all processes of the worker once more. Those that are stopped or wait for a device come first.
pub fn look_again(first: Option<&FirstLook>) -> Vec<Value> {
    let looked = first.map_or(0, |first| u64::try_from(first.at.elapsed().as_millis()).unwrap_or(u64::MAX));
    let mut processes: Vec<(bool, Value)> = descendants()
        .into_iter()
        .filter_map(|pid| {
            let fields = stat_fields(pid)?;
            let state = fields.get(STATE).map_or("?", String::as_str);
            let before = first.map_or(u64::MAX, |first| first.used.get(&pid).copied().unwrap_or(0));
            let used = ticks(&fields).saturating_sub(before).saturating_mul(TICK_MILLISECONDS);
            let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let wait_channel = read("wchan");
            let system_call = read("syscall");
            let system_call = system_call.split_ascii_whitespace().next().unwrap_or_default();
            let name = read("comm");
            let wait_channel = wait_channel.trim_matches(['0', '\n']);
            let value = process_value(pid, name.trim_end(), state, wait_channel, system_call, used, looked);
            Some((!matches!(state, "T" | "t" | "D"), value))
        })
        .collect();
    processes.sort_by_key(|(is_usual, _)| *is_usual);
    processes.into_iter().map(|(_, value)| value).take(MOST_PROCESSES).collect()
}

pub fn process_value(
    pid: i32,
    name: &str,
    state: &str,
    wait_channel: &str,
    system_call: &str,
    cpu_milliseconds: u64,
    looked_milliseconds: u64,
) -> Value {
    let mut value = json!({"pid": pid, "name": word(name), "state": word(state),
        "cpuMilliseconds": cpu_milliseconds, "lookedMilliseconds": looked_milliseconds});
    for (field, text) in [("waitChannel", wait_channel), ("systemCall", system_call)] {
        if !text.is_empty() {
            value[field] = word(text).into();
        }
    }
    value
}

/// A text that is safe to show, and short.
fn word(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { '?' } else { it }).take(WORD_CHARACTERS).collect()
}

/// CPU time of a process, in ticks.
fn ticks(fields: &[String]) -> u64 {
    let numbers = TICKS.map(|place| fields.get(place).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0));
    numbers.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use std::sync::mpsc;

    use rustix::process::{Pid, Signal, kill_process};
    use tokio::sync::oneshot;

    use super::*;
    use crate::stall_command::LIMIT;

    #[tokio::test(start_paused = true)]
    async fn command_that_does_not_come_back_is_left_out() {
        let (begins, has_begun) = oneshot::channel();
        let (_open, gate) = mpsc::channel::<()>();
        let command = move || {
            let _ = begins.send(());
            let _ = gate.recv();
            String::new()
        };
        let late = async {
            has_begun.await.unwrap();
            tokio::time::advance(LIMIT + LOOK_LIMIT).await;
        };
        let (evidence, ()) = tokio::join!(gather(|| vec![json!("process")], Some((command, LIMIT))), late);
        assert_eq!(evidence, Evidence { processes: vec![json!("process")], output: STUCK.to_owned() });
    }

    #[test]
    fn stopped_process_comes_first_with_its_state() {
        let mut children: Vec<_> = (0..3).map(|_| Command::new("sleep").arg("60").spawn().unwrap()).collect();
        let first = FirstLook::now();
        let stopped = Pid::from_child(&children[2]);
        kill_process(stopped, Signal::STOP).unwrap();
        let pid = stopped.as_raw_nonzero().get();
        let is_stopped = || look_again(Some(&first)).into_iter().find(|it| it["pid"] == pid && it["state"] == "T");
        let seen = std::iter::repeat_with(is_stopped).flatten().next().unwrap();
        assert_eq!((&seen["name"], &seen["cpuMilliseconds"]), (&json!("sleep"), &json!(0)));
        let processes = look_again(Some(&first));
        assert_eq!(processes[0]["pid"], pid);
        assert!(processes.len() >= 3);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn words_of_hostile_names_are_short_and_plain() {
        assert_eq!(word("a\u{1b}[2J\n"), "a?[2J?");
        assert_eq!(word(&"\u{1f600}".repeat(100)).chars().count(), WORD_CHARACTERS);
    }
}
