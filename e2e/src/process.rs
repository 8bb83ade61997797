//! Processes of containers, seen from the host: clusters run in namespaces below it.

use std::fs;

use anyhow::{Context, Result, bail};
use rustix::process::kill_process;
pub use rustix::process::{Pid, Signal};

/// Longest name that the kernel keeps of a program.
const COMM: usize = 15;

/// Sends a signal to the one process of this program that has these variables in its environment.
///
/// # Errors
/// If there is no such process, or several, or it cannot be signalled.
pub fn signal(program: &str, environment: &[(&str, &str)], signal: Signal) -> Result<()> {
    match find(program, environment)?[..] {
        [pid] => kill_process(pid, signal).with_context(|| format!("cannot signal {program}")),
        [] => bail!("no {program} runs with {environment:?}"),
        ref found => bail!("{} processes {program} run with {environment:?}", found.len()),
    }
}

/// The processes of this program that have these variables in their environment.
///
/// # Errors
/// If processes cannot be listed.
pub fn find(program: &str, environment: &[(&str, &str)]) -> Result<Vec<Pid>> {
    let wanted: Vec<String> = environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let matches = |pid: Pid| {
        let dir = format!("/proc/{}", pid.as_raw_nonzero());
        // A process may end while it is looked at.
        let Ok(name) = fs::read_to_string(format!("{dir}/comm")) else { return false };
        let Ok(environment) = fs::read(format!("{dir}/environ")) else { return false };
        let has = |variable: &String| environment.split(|byte| *byte == 0).any(|set| set == variable.as_bytes());
        name.trim_end() == &program[..program.len().min(COMM)] && wanted.iter().all(has)
    };
    let pids = fs::read_dir("/proc")?.flatten().filter_map(|process| process.file_name().to_str()?.parse().ok());
    Ok(pids.filter_map(Pid::from_raw).filter(|pid| matches(*pid)).collect())
}
