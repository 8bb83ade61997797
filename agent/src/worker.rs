//! The supervised worker: a process and all that it starts, from its start to the end of the last of them.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use jobset_protocol::agent::EPOCH;
use nix::sys::signal::SigSet;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, set_child_subreaper, test_kill_process_group,
    wait,
};
use rustix::termios::tcsetpgrp;
use tokio::time::Instant;

use crate::descendants;

/// Exit code that a shell gives for a program that is not found, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const CANNOT_RUN: u8 = 126;
/// How often processes that do not end after SIGKILL are named and killed again.
const STUCK_TOLD: Duration = Duration::from_secs(5);
/// How long the kernel may take to end a process after SIGKILL, before the container is given up: one that waits for a
/// device does not end, and no worker of the next epoch may run beside it.
const STUCK: Duration = Duration::from_mins(1);

/// A worker that was started.
#[derive(Debug)]
pub struct Worker {
    /// The process that was started; its process group has the same number.
    main: Pid,
    /// Exit code of that process, if it has ended.
    code: Option<u8>,
    /// When to kill what is left.
    kill_at: Option<Instant>,
    /// When what is left is given up.
    stuck_at: Option<Instant>,
}

/// Makes this process the one to which orphans are given, as the first process of a container is.
///
/// # Errors
/// The kernel refuses.
pub fn adopt_orphans() -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    // Without it, handing a terminal to the next worker would stop this process, which is in the background by then.
    Ok(SigSet::from(nix::sys::signal::Signal::SIGTTOU).thread_block()?)
}

impl Worker {
    /// Starts the program, in a process group of its own, with this process's standard streams and environment.
    ///
    /// # Errors
    /// The exit code of a shell that could not start it.
    pub fn start(command: &[OsString], epoch: Option<i32>) -> Result<Self, u8> {
        let [program, arguments @ ..] = command else { return Err(NOT_FOUND) };
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        match epoch {
            Some(epoch) => command.env(EPOCH, epoch.to_string()),
            None => command.env_remove(EPOCH),
        };
        let child = command.spawn().map_err(|error| {
            tracing::error!(program = %program.display(), %error, "cannot start the worker");
            if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN }
        })?;
        let main = Pid::from_child(&child);
        hand_terminal_to(main);
        Ok(Self { main, code: None, kill_at: None, stuck_at: None })
    }

    /// Passes SIGTERM on to the process that was started, as the container's first process would get it.
    pub fn terminate(&self) {
        self.pass_on(Signal::TERM.as_raw());
    }

    /// The same with the signal of this number.
    // No safe function sends a real-time signal: for rustix and nix, signals have names.
    #[allow(unsafe_code)]
    pub fn pass_on(&self, number: i32) {
        if self.code.is_none() {
            // It may have ended since.
            // SAFETY: takes two numbers, and touches no memory. The process is a child that was not waited for, so its number
            // is no other's.
            let _ = unsafe { nix::libc::kill(self.main.as_raw_nonzero().get(), number) };
        }
    }

    /// Asks the process group to end, and kills everything when the grace is over.
    pub fn stop(&mut self, grace: Duration) {
        if self.code.is_none() {
            let _ = kill_process_group(self.main, Signal::TERM);
            self.kill_at = Some(Instant::now() + grace);
        }
    }

    /// When [`Worker::on_time`] has something to do.
    pub fn due(&self) -> Option<Instant> {
        self.kill_at
    }

    /// The time of [`Worker::due`] has come. Whether processes of it are given up: they cannot be killed.
    pub fn on_time(&mut self) -> bool {
        let now = Instant::now();
        if self.stuck_at.is_none() {
            tracing::info!("the worker has not ended within its grace and is killed");
        } else {
            let processes = descendants::names().join(", ");
            tracing::warn!(%processes, "processes of the worker do not end though they were killed");
        }
        self.kill(now);
        self.stuck_at.is_some_and(|stuck_at| now >= stuck_at)
    }

    /// Children have ended: takes note of them all, and kills what the main process leaves behind, unless that still has its
    /// grace. Gives its exit code, or 128 and the signal that ended it, once nothing is left of the worker.
    pub fn reap(&mut self) -> Option<u8> {
        let any_left = reap_children(|pid, status| {
            if pid == self.main {
                self.code = Some(shell_code(status));
            }
        });
        if !any_left {
            return self.code;
        }
        if self.stuck_at.is_some() || self.code.is_some() && !self.rest_has_grace() {
            self.kill(Instant::now());
        }
        None
    }

    /// Whether others of the process group were asked to end with the main process, and still have time: a shell ends at
    /// once, while the program that it has started may save its state. Who has left the group was asked nothing.
    fn rest_has_grace(&self) -> bool {
        self.kill_at.is_some() && test_kill_process_group(self.main).is_ok()
    }

    fn kill(&mut self, now: Instant) {
        if self.code.is_none() {
            let _ = kill_process_group(self.main, Signal::KILL);
        }
        descendants::kill_all();
        self.stuck_at.get_or_insert(now + STUCK);
        self.kill_at = Some(now + STUCK_TOLD);
    }
}

/// Children have ended of which no worker is known: orphans of what a person runs in the container.
pub fn reap_strangers() {
    reap_children(|_, _| {});
}

/// Tells of each child that has ended. Whether any child, and so any descendant, is left.
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

/// The exit code that a shell would give: the worker's own, or 128 and the number of the signal that ended it.
fn shell_code(status: WaitStatus) -> u8 {
    let signaled = status.terminating_signal().map(|signal| 128 + signal);
    let code = status.exit_status().or(signaled).unwrap_or(i32::from(u8::MAX));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Puts the process group into the foreground, if there is a terminal: only that one may read from it.
fn hand_terminal_to(group: Pid) {
    // A terminal that is not this process's own, and anything else that is not one, is left alone.
    if tcsetpgrp(io::stdin(), group).is_ok() {
        // It may have been stopped for reading too early.
        let _ = kill_process_group(group, Signal::CONT);
    }
}
