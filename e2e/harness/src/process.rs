//! Processes of containers, seen from the host: clusters run in namespaces below it.

use std::fs;

use anyhow::{Context, Result, bail};
pub use rustix::io::Errno;
use rustix::process::kill_process;
pub use rustix::process::{Pid, Signal};

/// Longest name that the kernel keeps of a program.
const COMM: usize = 15;

/// A running process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its id on the host.
    pub pid: Pid,
    environment: Vec<u8>,
}

impl Process {
    /// A variable of its environment, as it was when the process started.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let mut set = self.environment.split(|byte| *byte == 0).filter_map(|set| str::from_utf8(set).ok());
        set.find_map(|set| set.strip_prefix(name)?.strip_prefix('='))
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
///
/// # Errors
/// If `/proc` cannot be read.
pub fn find(program: &str, environment: &[(&str, &str)]) -> Result<Vec<Process>> {
    let comm = &program[..program.len().min(COMM)];
    let read = |pid: Pid| {
        let dir = format!("/proc/{}", pid.as_raw_nonzero());
        // A process may end while it is looked at.
        let name = fs::read_to_string(format!("{dir}/comm")).ok()?;
        let environment = fs::read(format!("{dir}/environ")).ok()?;
        (name.trim_end() == comm).then_some(Process { pid, environment })
    };
    let pids = fs::read_dir("/proc")?.flatten().filter_map(|process| process.file_name().to_str()?.parse().ok());
    let wanted = |process: &Process| environment.iter().all(|(name, value)| process.variable(name) == Some(value));
    Ok(pids.filter_map(Pid::from_raw).filter_map(read).filter(wanted).collect())
}

/// The one process of this program that has these variables in its environment.
///
/// # Errors
/// If there is no such process, or several.
pub fn find_one(program: &str, environment: &[(&str, &str)]) -> Result<Process> {
    let mut found = find(program, environment)?;
    match (found.pop(), found.len()) {
        (Some(process), 0) => Ok(process),
        (None, _) => bail!("no {program} runs with {environment:?}"),
        (Some(_), others) => bail!("{} processes {program} run with {environment:?}", others + 1),
    }
}

/// Sends a signal to the one process of this program that has these variables in its environment.
///
/// # Errors
/// As [`find_one`], or if it cannot be signalled.
pub fn signal(program: &str, environment: &[(&str, &str)], signal: Signal) -> Result<()> {
    find_one(program, environment)?.signal(signal).with_context(|| format!("cannot signal {program}"))
}
