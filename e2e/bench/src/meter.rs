//! CPU time and memory of processes, as the kernel counts them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use procfs::process::{Process, Status, all_processes};
use procfs::{CurrentSI as _, KernelStats};
use serde::Serialize;

use crate::report::{number, rounded};

/// Longest name that the kernel keeps of a program.
const COMM: usize = 15;

/// The measured processes, by the names of their figures. Those of one name are added.
pub(crate) struct Meter(Vec<(&'static str, Process)>);

/// CPU seconds of each process since its start, and of the machine, at one instant.
#[derive(Clone, Debug)]
pub(crate) struct CpuReading {
    at: Instant,
    seconds: BTreeMap<&'static str, f64>,
}

/// CPU seconds over a time, by process. `load_generator` is this process, `machine` all processes and the kernel,
/// `elapsed` the time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CpuSeconds(pub(crate) BTreeMap<&'static str, f64>);

impl Meter {
    /// Measures these processes, and this one as `load_generator`.
    pub(crate) fn new(processes: &[(&'static str, u32)]) -> Result<Self> {
        let own = ("load_generator", std::process::id());
        processes
            .iter()
            .copied()
            .chain([own])
            .map(|(name, pid)| Ok((name, process(pid)?)))
            .collect::<Result<_>>()
            .map(Self)
    }

    pub(crate) fn read(&self) -> Result<CpuReading> {
        let at = Instant::now();
        let of = |process: &Process| {
            let stat = process.stat().with_context(|| format!("process {} has ended", process.pid))?;
            anyhow::Ok(ticks(stat.utime + stat.stime))
        };
        let mut seconds: BTreeMap<_, f64> = BTreeMap::new();
        for (name, process) in &self.0 {
            *seconds.entry(*name).or_default() += of(process)?;
        }
        let machine = KernelStats::current().context("cannot read /proc/stat")?.total;
        let interrupts = machine.irq.unwrap_or_default() + machine.softirq.unwrap_or_default();
        seconds.insert("machine", ticks(machine.user + machine.nice + machine.system + interrupts));
        Ok(CpuReading { at, seconds })
    }
}

impl CpuReading {
    /// CPU seconds of one process since its start.
    pub(crate) fn of(&self, name: &str) -> f64 {
        self.seconds.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn since(&self, before: &Self) -> CpuSeconds {
        let used = |name: &str| rounded((self.of(name) - before.of(name)).max(0.0), 1e4);
        let mut seconds: BTreeMap<_, _> = self.seconds.keys().map(|name| (*name, used(name))).collect();
        seconds.insert("elapsed", rounded(self.at.duration_since(before.at).as_secs_f64(), 1e4));
        CpuSeconds(seconds)
    }
}

impl CpuSeconds {
    /// CPU seconds of one process, of the machine, or the elapsed time.
    pub(crate) fn of(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// CPU seconds of other processes and of the kernel.
    pub(crate) fn others(&self) -> f64 {
        let measured = self.0.iter().filter(|(name, _)| !["machine", "elapsed"].contains(*name));
        (self.of("machine") - measured.map(|(_, seconds)| seconds).sum::<f64>()).max(0.0)
    }
}

/// Memory and threads of a process.
pub(crate) fn status(pid: u32) -> Result<Status> {
    process(pid)?.status().with_context(|| format!("process {pid} has ended"))
}

/// Peak of a process's resident memory since its start, in KiB (`VmHWM`).
pub(crate) fn peak_rss_kib(pid: u32) -> Result<u64> {
    status(pid)?.vmhwm.with_context(|| format!("process {pid} has no VmHWM"))
}

/// Resident memory of some processes now, in KiB (`VmRSS`).
pub(crate) fn rss_kib(pids: &[u32]) -> Result<u64> {
    pids.iter().map(|pid| status(*pid)?.vmrss.with_context(|| format!("process {pid} has no VmRSS"))).sum()
}

/// The one process of this program whose arguments name this folder, such as a cluster's.
pub(crate) fn process_in(folder: &Path, program: &str) -> Result<u32> {
    let (folder, comm) = (folder.to_string_lossy(), &program[..program.len().min(COMM)]);
    // A process may end while it is read.
    let is_it = |process: &Process| {
        process.stat().is_ok_and(|stat| stat.comm == comm)
            && process.cmdline().is_ok_and(|arguments| arguments.iter().any(|it| it.contains(&*folder)))
    };
    let found: Vec<_> = all_processes().context("cannot list processes")?.flatten().filter(is_it).collect();
    ensure!(found.len() == 1, "{} processes {program} run in {folder}", found.len());
    Ok(u32::try_from(found[0].pid)?)
}

fn process(pid: u32) -> Result<Process> {
    Process::new(i32::try_from(pid)?).with_context(|| format!("process {pid} has ended"))
}

fn ticks(count: u64) -> f64 {
    number(count) / number(procfs::ticks_per_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_what_no_measured_process_used() {
        let reading = |machine, etcd| CpuReading {
            at: Instant::now(),
            seconds: [("machine", machine), ("etcd", etcd), ("load_generator", 1.0)].into(),
        };
        let used = reading(10.0, 5.0).since(&reading(4.0, 3.0));
        assert!((used.of("etcd") - 2.0).abs() < 1e-9 && (used.others() - 4.0).abs() < 1e-9, "{used:?}");
    }

    #[test]
    fn own_process_has_memory_and_cpu() {
        let own = std::process::id();
        assert!(peak_rss_kib(own).unwrap() > 100 && rss_kib(&[own, own]).unwrap() > 200);
        let reading = Meter::new(&[]).unwrap().read().unwrap();
        assert!(reading.of("machine") >= reading.of("load_generator"), "{reading:?}");
    }

    #[test]
    fn processes_of_one_name_are_added() {
        let read = |processes: &[_]| Meter::new(processes).unwrap().read().unwrap().of("load_generator");
        let (begun, mut once) = (Instant::now(), 0.0);
        // This process uses CPU until the kernel counts some.
        while once < 0.02 && begun.elapsed().as_secs() < 60 {
            once = read(&[]);
        }
        let twice = read(&[("load_generator", std::process::id())]);
        assert!(once > 0.0 && twice >= 2.0 * once, "{once} {twice}");
    }
}
