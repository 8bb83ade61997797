//! The supervised worker: its main process and all processes that this one starts, until the last of them has ended.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::Duration;

use jobset_protocol::agent::EPOCH;
use k8s_openapi::jiff::Timestamp;
use nix::sys::signal::SigSet;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, set_child_subreaper, test_kill_process_group,
    wait,
};
use rustix::termios::tcsetpgrp;
use thiserror::Error;
use tokio::time::Instant;

use crate::descendants;
use crate::output::{self, WorkerOutput};
use crate::progress::StepReader;
use crate::worker_exit::ProcessEnd;

/// Exit code of a shell for a program that is not found.
const NOT_FOUND: u8 = 127;
/// Exit code of a shell for a program that cannot be run.
const CANNOT_RUN: u8 = 126;
/// Interval at which processes that survive SIGKILL are logged and killed again.
const KILL_INTERVAL: Duration = Duration::from_secs(5);
/// Time limit for the kernel to end a process after SIGKILL; then the agent ends the container. A process that waits for a
/// device does not end, and the worker of the next epoch must not run beside it.
const KILL_TIMEOUT: Duration = Duration::from_mins(1);

/// The files with the events of the container's control group, of version 2 and of version 1.
const MEMORY_EVENTS: [&str; 2] = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"];

#[derive(Debug, Error)]
pub enum StartError {
    #[error("cannot start the worker: it has no command")]
    NoProgram,
    #[error("cannot start the worker {}: {source}", program.display())]
    Program { program: OsString, source: io::Error },
    #[error("cannot copy the output of the worker: {0}")]
    Output(#[source] io::Error),
}

impl StartError {
    /// The exit code of a shell that cannot start the program.
    pub fn code(&self) -> u8 {
        match self {
            Self::NoProgram => NOT_FOUND,
            Self::Program { source, .. } if source.kind() == io::ErrorKind::NotFound => NOT_FOUND,
            Self::Program { .. } | Self::Output(_) => CANNOT_RUN,
        }
    }
}

#[derive(Debug)]
pub struct Worker {
    /// The main process. Its id is also the id of its process group.
    main: Pid,
    /// Epoch of the worker; `None` if the JobSet does not restart in place.
    pub epoch: Option<i32>,
    end: Option<ProcessEnd>,
    /// How many processes of the container the kernel had killed for want of memory when the worker started.
    memory_kills: u64,
    /// Whether the worker was asked to end.
    pub asked: bool,
    pub output: WorkerOutput,
    /// When to call [`Worker::on_deadline`]; `None` if no process is to be killed.
    pub kill_at: Option<Instant>,
    /// When to give up on processes that survive SIGKILL.
    give_up_at: Option<Instant>,
}

/// Makes this process a child subreaper, so that it adopts the orphans among its descendants, as the first process of a
/// container does.
pub fn adopt_orphans() -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    // This process is in the background once a worker has the terminal. Handing the terminal to the next worker would raise
    // SIGTTOU, which stops a process that does not block it.
    Ok(terminal_output().thread_block()?)
}

fn terminal_output() -> SigSet {
    SigSet::from(nix::sys::signal::Signal::SIGTTOU)
}

/// Starts the program without the signal that this process blocks: a child inherits blocked signals.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    terminal_output().thread_unblock()?;
    let child = command.spawn();
    terminal_output().thread_block()?;
    child
}

impl Worker {
    /// Starts the program in a process group of its own, with the standard input and the environment of this process. Its output
    /// is copied to that of this process, and each of both streams is read by such a reader.
    pub fn start(
        command: &[OsString],
        epoch: Option<i32>,
        step_reader: impl Fn() -> Option<StepReader>,
    ) -> Result<Self, StartError> {
        let [program, arguments @ ..] = command else { return Err(StartError::NoProgram) };
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        match epoch {
            Some(epoch) => command.env(EPOCH, epoch.to_string()),
            None => command.env_remove(EPOCH),
        };
        output::pipe(&mut command);
        let memory_kills = memory_kills();
        let mut child =
            spawn(&mut command).map_err(|source| StartError::Program { program: program.clone(), source })?;
        let main = Pid::from_child(&child);
        hand_terminal_to(main);
        let output = WorkerOutput::copy(child.stdout.take(), child.stderr.take(), step_reader).map_err(|source| {
            descendants::kill_all();
            StartError::Output(source)
        })?;
        Ok(Self { main, epoch, end: None, memory_kills, asked: false, output, kill_at: None, give_up_at: None })
    }

    /// The id of the main process.
    pub fn pid(&self) -> i32 {
        self.main.as_raw_nonzero().get()
    }

    /// Sends SIGTERM to the main process alone, as the kubelet does to the first process of a container.
    pub fn terminate(&mut self) {
        self.asked = true;
        self.signal(Signal::TERM.as_raw());
    }

    /// Sends the signal of this number to the main process.
    // No safe function sends a real-time signal: rustix and nix accept named signals only.
    #[allow(unsafe_code)]
    pub fn signal(&self, number: i32) {
        if self.end.is_none() {
            // The process may have ended meanwhile, so the error does not matter.
            // SAFETY: kill takes two numbers and touches no memory. The main process is a child that was not reaped, so no other
            // process has its id.
            let _ = unsafe { nix::libc::kill(self.main.as_raw_nonzero().get(), number) };
        }
    }

    /// Sends SIGTERM to the process group, and sets the time at which all processes that are left get SIGKILL.
    pub fn stop(&mut self, grace: Duration) {
        self.asked = true;
        if self.end.is_none() {
            let _ = kill_process_group(self.main, Signal::TERM);
            self.kill_at = Some(Instant::now() + grace);
        }
    }

    /// Sends SIGKILL to all processes that are left. Returns whether to give up on them, because they survive SIGKILL.
    pub fn on_deadline(&mut self) -> bool {
        let now = Instant::now();
        if self.give_up_at.is_none() {
            tracing::info!("the worker did not end within its grace period; killing it");
        } else {
            let processes = descendants::names().join(", ");
            tracing::warn!(%processes, "processes of the worker survive SIGKILL");
        }
        self.kill(now);
        self.give_up_at.is_some_and(|give_up_at| now >= give_up_at)
    }

    /// Reaps all children that have ended. Once the main process has ended, kills the processes that it leaves, unless their
    /// grace period still runs. Returns how the main process ended, once no process of the worker is left.
    pub fn reap(&mut self) -> Option<ProcessEnd> {
        let any_left = reap_children(|pid, status| {
            if pid == self.main {
                self.end = Some(ProcessEnd { out_of_memory: memory_kills() > self.memory_kills, ..end(status) });
            }
        });
        if !any_left {
            return self.end;
        }
        if self.give_up_at.is_some() || self.end.is_some() && !self.group_has_grace() {
            self.kill(Instant::now());
        }
        None
    }

    /// Whether other processes of the process group got SIGTERM with the main process and their grace period still runs. A shell
    /// ends at once, while the program that it started may save its state. A process that has left the group got no SIGTERM.
    fn group_has_grace(&self) -> bool {
        self.kill_at.is_some() && test_kill_process_group(self.main).is_ok()
    }

    fn kill(&mut self, now: Instant) {
        if self.end.is_none() {
            let _ = kill_process_group(self.main, Signal::KILL);
        }
        descendants::kill_all();
        self.give_up_at.get_or_insert(now + KILL_TIMEOUT);
        self.kill_at = Some(now + KILL_INTERVAL);
    }
}

/// Reaps all children that have ended while no worker runs: orphans of processes that a person runs in the container.
pub fn reap_orphans() {
    reap_children(|_, _| {});
}

/// Reaps all children that have ended and calls `ended` for each. Returns whether a child, and so any descendant, is left.
fn reap_children(mut ended: impl FnMut(Pid, WaitStatus)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => ended(pid, status),
            Ok(None) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// The end of a process, with the exit code as a shell reports it: the code of the process, or 128 plus the number of the signal that ended it.
fn end(status: WaitStatus) -> ProcessEnd {
    let signal = status.terminating_signal();
    let code = status.exit_status().or(signal.map(|signal| 128 + signal)).unwrap_or(i32::from(u8::MAX));
    ProcessEnd { code: u8::try_from(code).unwrap_or(u8::MAX), signal, out_of_memory: false, at: Timestamp::now() }
}

/// How many processes of this container the kernel has killed for want of memory. 0 if it does not tell.
fn memory_kills() -> u64 {
    let text = MEMORY_EVENTS.iter().find_map(|path| std::fs::read_to_string(path).ok());
    text.and_then(|text| memory_kills_in(&text)).unwrap_or(0)
}

fn memory_kills_in(events: &str) -> Option<u64> {
    events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Puts the process group into the foreground of the terminal, if there is one: only that group may read from the terminal.
fn hand_terminal_to(group: Pid) {
    // The call fails for standard input that is not the controlling terminal of this process.
    if tcsetpgrp(io::stdin(), group).is_ok() {
        // The kernel may have stopped the group for a read before it was in the foreground.
        let _ = kill_process_group(group, Signal::CONT);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::memory_kills_in;

    #[rstest]
    #[case::version_2("low 0\nhigh 0\nmax 12\noom 4\noom_kill 3\noom_group_kill 0\n", Some(3))]
    #[case::version_1("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", Some(2))]
    #[case::older_kernel("oom_kill_disable 0\nunder_oom 0\n", None)]
    #[case::malformed("oom_kill many\n", None)]
    fn memory_kills_are_those_of_the_kernel(#[case] events: &str, #[case] kills: Option<u64>) {
        assert_eq!(memory_kills_in(events), kills);
    }
}
