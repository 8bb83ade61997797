//! A process that is stopped.

use anyhow::{Context, Result};
use jobset_harness::process::{Process, Signal};

/// A process that has got SIGSTOP. It gets SIGCONT when this is dropped, whatever has failed meanwhile.
pub(super) struct Stopped<'a>(&'a Process);

impl<'a> Stopped<'a> {
    /// Stops a process.
    pub(super) fn stop(process: &'a Process) -> Result<Self> {
        process.signal(Signal::STOP).context("cannot stop a process")?;
        Ok(Self(process))
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        // The kubelet may have killed it meanwhile.
        let _ = self.0.signal(Signal::CONT);
    }
}
