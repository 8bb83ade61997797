//! What running agents take of the machine.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::procfs;
use jobset_harness::group::Group;
use jobset_harness::process;

/// The most that any of some agents takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Footprint {
    /// Resident memory while the worker runs (`VmRSS`).
    pub(super) rss_kib: u64,
    /// Its peak since the agent started (`VmHWM`).
    pub(super) peak_rss_kib: u64,
    /// Threads.
    pub(super) threads: u64,
}

impl Footprint {
    /// From `/proc/<pid>/status`.
    fn parse(status: &str) -> Option<Self> {
        let (rss_kib, peak_rss_kib) = (procfs::rss_kib(status)?, procfs::peak_rss_kib(status)?);
        Some(Self { rss_kib, peak_rss_kib, threads: procfs::threads(status)? })
    }

    /// The larger one of each figure.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            rss_kib: self.rss_kib.max(other.rss_kib),
            peak_rss_kib: self.peak_rss_kib.max(other.peak_rss_kib),
            threads: self.threads.max(other.threads),
        }
    }

    /// The most that any agent of the group takes now.
    ///
    /// # Errors
    /// If there is not one agent for each worker, or one ends meanwhile.
    pub(super) fn of_agents(group: &Group) -> Result<Self> {
        let agents = process::find("jobset-agent", &[("NAMESPACE", &group.namespace)])?;
        ensure!(agents.len() == group.workers, "{} agents run for {} workers", agents.len(), group.workers);
        let mut most = Self::default();
        for agent in agents {
            let file = format!("/proc/{}/status", agent.pid.as_raw_nonzero());
            let status = fs::read_to_string(&file).context("an agent has ended")?;
            most = most.max(Self::parse(&status).with_context(|| format!("{file} is not as expected"))?);
        }
        Ok(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_the_largest() {
        let one = Footprint::parse("VmHWM:\t 9 kB\nVmRSS:\t 5 kB\nThreads:\t1\n").unwrap();
        let other = Footprint::parse("VmHWM:\t 8 kB\nVmRSS:\t 7 kB\nThreads:\t2\n").unwrap();
        let most = Footprint { rss_kib: 7, peak_rss_kib: 9, threads: 2 };
        assert_eq!((one.max(other), other.max(one)), (most, most));
        assert_eq!(Footprint::parse("VmHWM:\t 9 kB\nVmRSS:\t 5 kB\n"), None);
    }
}
