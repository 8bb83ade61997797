//! Processes of containers, seen from the host: clusters run in namespaces below it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use anyhow::{Context, Result, bail};
use procfs::process::all_processes;
pub use rustix::io::Errno;
use rustix::process::kill_process;
pub use rustix::process::{Pid, Signal};

/// Longest name that the kernel keeps of a program.
const COMM: usize = 15;

#[derive(Clone, Debug)]
pub struct Process {
    /// Its id on the host.
    pub pid: Pid,
    environment: HashMap<OsString, OsString>,
}

impl Process {
    /// A variable of its environment, as it was when the process started.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(OsStr::new(name))?.to_str()
    }

    /// Sends a signal to it.
    ///
    /// # Errors
    /// [`Errno::SRCH`] if it has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), Errno> {
        kill_process(self.pid, signal)
    }
}

/// The processes of this program that have these variables in their environment.
pub fn find(program: &str, environment: &[(&str, &str)]) -> Result<Vec<Process>> {
    let comm = &program[..program.len().min(COMM)];
    // A process may end while it is read; then it is not among those that are found.
    let read = |process: procfs::process::Process| {
        let is_program = process.stat().ok()?.comm == comm;
        let pid = Pid::from_raw(process.pid())?;
        is_program.then(|| Some(Process { pid, environment: process.environ().ok()? }))?
    };
    let wanted = |process: &Process| environment.iter().all(|(name, value)| process.variable(name) == Some(value));
    Ok(all_processes()?.flatten().filter_map(read).filter(wanted).collect())
}

/// The one process of this program that has these variables in its environment.
pub fn find_one(program: &str, environment: &[(&str, &str)]) -> Result<Process> {
    let mut found = find(program, environment)?;
    match (found.pop(), found.len()) {
        (Some(process), 0) => Ok(process),
        (None, _) => bail!("no {program} runs with {environment:?}"),
        (Some(_), others) => bail!("{} processes {program} run with {environment:?}", others + 1),
    }
}

/// Sends a signal to the one process of this program that has these variables in its environment.
pub fn signal(program: &str, environment: &[(&str, &str)], signal: Signal) -> Result<()> {
    find_one(program, environment)?.signal(signal).with_context(|| format!("cannot signal {program}"))
}
