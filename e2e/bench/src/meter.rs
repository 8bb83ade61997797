//! CPU, memory and requests of the processes that take part, read from the kernel and from the API server.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kube::Client;
use serde::Serialize;

use super::procfs::{self, Stat};
use super::report::seconds;
use super::requests::Requests;
use jobset_harness::cluster::ControlPlane;

/// Reads the processes of one control plane, its controller, and this one.
pub(super) struct Meter {
    client: Client,
    controller: u32,
    api_server: u32,
    etcd: u32,
    controller_manager: u32,
}

/// CPU time since each process started, at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    at: Instant,
    controller: Duration,
    api_server: Duration,
    etcd: Duration,
    controller_manager: Duration,
    load_generator: Duration,
    machine: Duration,
}

/// CPU seconds of each process over a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Cpu {
    /// The time, in seconds.
    pub(super) elapsed: f64,
    pub(super) api_server: f64,
    pub(super) etcd: f64,
    /// jobset-controller.
    pub(super) controller: f64,
    /// kube-controller-manager.
    pub(super) controller_manager: f64,
    /// The agents, kubelets and watches of the benchmark.
    pub(super) load_generator: f64,
    /// Everything on this machine, what has nothing to do with the benchmark too.
    pub(super) machine: f64,
}

impl Meter {
    /// Finds the processes.
    ///
    /// # Errors
    /// If one is not there.
    pub(super) fn new(plane: &ControlPlane, client: Client, controller: u32) -> Result<Self> {
        let processes = processes()?;
        let find = |program: &str| {
            let pid = procfs::descendant(&processes, plane.owner_pid(), program);
            pid.with_context(|| format!("there is not one process {program} of the control plane"))
        };
        Ok(Self {
            client,
            controller,
            api_server: find("kube-apiserver")?,
            etcd: find("etcd")?,
            controller_manager: find("kube-controller-manager")?,
        })
    }

    /// Reads the CPU times.
    ///
    /// # Errors
    /// If a process has ended.
    pub(super) fn read(&self) -> Result<Reading> {
        Ok(Reading {
            at: Instant::now(),
            controller: cpu(self.controller)?,
            api_server: cpu(self.api_server)?,
            etcd: cpu(self.etcd)?,
            controller_manager: cpu(self.controller_manager)?,
            load_generator: cpu(std::process::id())?,
            machine: machine_cpu()?,
        })
    }

    /// The controller's peak of resident memory, in KiB.
    ///
    /// # Errors
    /// If it has ended.
    pub(super) fn controller_peak_rss_kib(&self) -> Result<u64> {
        peak_rss_kib(self.controller)
    }

    /// The requests that the API server has counted.
    ///
    /// # Errors
    /// If it does not answer.
    pub(super) async fn requests(&self) -> Result<Requests> {
        let request = http::Request::get("/metrics").body(Vec::new()).context("not a request")?;
        Ok(Requests::parse(&self.client.request_text(request).await.context("the API server's metrics")?))
    }
}

impl Reading {
    /// CPU time of the controller.
    pub(super) fn controller(&self) -> Duration {
        self.controller
    }

    /// What was used since `before`.
    pub(super) fn since(&self, before: &Self) -> Cpu {
        let more = |of: fn(&Self) -> Duration| seconds(of(self).saturating_sub(of(before)));
        Cpu {
            elapsed: seconds(self.at.duration_since(before.at)),
            api_server: more(|reading| reading.api_server),
            etcd: more(|reading| reading.etcd),
            controller: more(|reading| reading.controller),
            controller_manager: more(|reading| reading.controller_manager),
            load_generator: more(|reading| reading.load_generator),
            machine: more(|reading| reading.machine),
        }
    }
}

/// CPU time of a process since it started, of all its threads.
///
/// # Errors
/// If it has ended.
pub(super) fn cpu(pid: u32) -> Result<Duration> {
    let stat = stat(pid).with_context(|| format!("process {pid} has ended"))?;
    Ok(procfs::time_of(stat.ticks, rustix::param::clock_ticks_per_second()))
}

/// Time that all CPUs together were busy since the machine started.
///
/// # Errors
/// If the kernel does not tell.
pub(super) fn machine_cpu() -> Result<Duration> {
    let ticks = fs::read_to_string("/proc/stat").ok().and_then(|stat| procfs::machine_ticks(&stat));
    Ok(procfs::time_of(ticks.context("/proc/stat has no CPU times")?, rustix::param::clock_ticks_per_second()))
}

/// Peak of a process's resident memory since it started, in KiB (`VmHWM`).
///
/// # Errors
/// If it has ended.
pub(super) fn peak_rss_kib(pid: u32) -> Result<u64> {
    let status =
        fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid} has ended"))?;
    procfs::peak_rss_kib(&status).with_context(|| format!("the kernel does not tell the peak memory of process {pid}"))
}

fn stat(pid: u32) -> Option<Stat> {
    Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn processes() -> Result<Vec<Stat>> {
    let entries = fs::read_dir("/proc").context("cannot list processes")?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // A process may end while it is looked at.
    Ok(pids.filter_map(stat).collect())
}
