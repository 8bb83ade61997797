//! The user's command that runs when a stall begins, such as `py-spy dump`.

use std::ffi::OsString;
use std::io::{self, PipeReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jobset_protocol::agent::EPOCH;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpgid};

use crate::worker::spawn;

/// How long the command may run.
pub const LIMIT: Duration = Duration::from_secs(10);
/// How often a command that has closed its output is looked at.
const LOOK: Duration = Duration::from_millis(20);
const MOST_OUTPUT: usize = 64 << 10;
/// Variable with the process id of the worker.
const WORKER_PID: &str = "WORKER_PID";

/// Runs the command to its end, or kills it when its time is over. Returns its output, or why there is none.
pub fn run(command: &OsString, worker: Option<i32>, epoch: i32) -> String {
    output_of(command, worker, epoch, LIMIT).unwrap_or_else(|error| format!("cannot run the stall command: {error}"))
}

fn output_of(command: &OsString, worker: Option<i32>, epoch: i32, limit: Duration) -> io::Result<String> {
    let (reader, writer) = io::pipe()?;
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).process_group(0).stdin(Stdio::null());
    shell.stdout(writer.try_clone()?).stderr(writer);
    shell.env(EPOCH, epoch.to_string());
    if let Some(pid) = worker {
        shell.env(WORKER_PID, pid.to_string());
    }
    // The agent reaps it with all other children.
    let group = Pid::from_child(&spawn(&mut shell)?);
    // The command holds writers of the pipe, which has an end only without them.
    drop(shell);
    let end = Instant::now() + limit;
    let (mut output, is_whole) = read(reader, end);
    // A command that writes to a file, or has left a process behind, may still be at work.
    if !is_whole || !ends(group, end) {
        let _ = kill_process_group(group, Signal::KILL);
        output.push_str("\n(the stall command was killed: it has not ended in time, or wrote too much)");
    }
    Ok(output)
}

/// Waits until no process of the group is left. Returns whether that came in time.
fn ends(group: Pid, end: Instant) -> bool {
    loop {
        // A process that nobody has reaped counts as one that is left.
        while let Ok(Some(_)) = waitpgid(group, WaitOptions::NOHANG) {}
        if test_kill_process_group(group).is_err() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

/// Reads to the end, as long as there is time and room. Returns whether that was the end.
fn read(mut reader: PipeReader, end: Instant) -> (String, bool) {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    let is_whole = loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or_default();
        let is_ready = poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&timeout));
        if is_ready == Ok(0) || left.is_zero() || bytes.len() >= MOST_OUTPUT {
            break false;
        }
        match reader.read(&mut chunk) {
            Ok(0) => break true,
            Ok(length) => bytes.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break true,
        }
    };
    (String::from_utf8_lossy(&bytes).into_owned(), is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(command: &str, limit: Duration) -> String {
        output_of(&command.into(), Some(7), 3, limit).unwrap()
    }

    #[test]
    fn command_output_of_both_streams_is_returned() {
        let text = output("echo pid $WORKER_PID; echo epoch $JOBSET_EPOCH >&2; exit 3", LIMIT);
        assert_eq!(text, "pid 7\nepoch 3\n");
    }

    #[test]
    fn command_that_hangs_is_killed() {
        let text = output("echo begun; sleep 600", Duration::from_millis(300));
        assert!(text.starts_with("begun\n\n(the stall command was killed"), "{text}");
    }

    #[test]
    fn command_that_hangs_without_output_is_killed() {
        let text = output("exec >/dev/null 2>&1; sleep 600", Duration::from_millis(300));
        assert!(text.starts_with("\n(the stall command was killed"), "{text}");
    }

    #[test]
    fn command_that_writes_to_a_file_is_awaited() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dump");
        let command = format!("exec >{} 2>&1; sleep 0.2; echo dumped", file.display());
        assert_eq!(
            (output(&command, LIMIT), std::fs::read_to_string(file).unwrap()),
            (String::new(), "dumped\n".into())
        );
    }

    #[test]
    fn command_that_writes_without_end_is_killed() {
        let text = output("yes", LIMIT);
        assert!(text.ends_with("wrote too much)") && text.len() < MOST_OUTPUT + 8192);
    }
}
