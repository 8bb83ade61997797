//! Ends a cluster that somebody else started, and that nobody holds.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use procfs::process::Process;
use rustix::process::{Pid, Signal, kill_process};

use super::slot::NetworkSlot;
use super::storage;
use crate::paths;

/// How long an owner may take to take its cluster down.
const LIMIT: Duration = Duration::from_mins(3);

/// Ends the cluster in `dir` and removes the folder.
pub fn down(dir: &Path) -> Result<()> {
    let ready = storage::recorded(dir)?;
    let pid = i32::try_from(ready.owner).ok().and_then(Pid::from_raw).context("the record has no process id")?;
    let start = Instant::now();
    if is_owner(ready.owner) {
        kill_process(pid, Signal::TERM).context("cannot end the cluster's owner")?;
    }
    while is_owner(ready.owner) {
        if start.elapsed() > LIMIT {
            bail!("the cluster's owner (process {}) did not end within {} s", ready.owner, LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // A killed owner has not removed its cgroups.
    NetworkSlot::sweep()?;
    paths::remove(dir)
}

/// Whether the process is still an owner of a cluster, and not another one that has got its number since.
fn is_owner(pid: u32) -> bool {
    let command = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()?.cmdline().ok()).unwrap_or_default();
    matches!(&command[..], [program, action, ..] if program.ends_with("e2e-cluster") && action == "up")
}
