//! `process_*`, by the names that all Prometheus clients give them, read from `/proc` at each scrape.
//!
//! prometheus has a collector of its own behind a feature, which brings procfs and, with it, an older rustix beside ours.

use std::fs;

use prometheus::Registry;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use crate::Family;

/// What the kernel says of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stat {
    /// Of user and system.
    cpu_ticks: f64,
    threads: f64,
    /// Since the machine was booted.
    started_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

/// Registers them.
pub(crate) fn register(registry: &Registry) -> prometheus::Result<()> {
    let descs = families(None).iter().map(Family::desc).collect::<prometheus::Result<_>>()?;
    registry.register(Box::new(Process { descs }))
}

struct Process {
    descs: Vec<Desc>,
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let stat = fs::read_to_string("/proc/self/stat").ok();
        families(stat.and_then(|stat| read(&stat))).into_iter().map(Into::into).collect()
    }
}

/// Without a value, a metric has no series.
fn families(stat: Option<Stat>) -> Vec<Family> {
    let per_second = float(clock_ticks_per_second());
    let of = |value: fn(Stat) -> f64| stat.map(value);
    let booted = || fs::read_to_string("/proc/stat").ok().and_then(|stat| boot_time(&stat));
    let started = of(|it| it.started_ticks).and_then(|ticks| Some(booted()? + ticks / per_second));
    // The directory that is read is one of them while it is.
    let open = || fs::read_dir("/proc/self/fd").ok().map(|files| float(files.count().saturating_sub(1) as u64));
    let values = [
        (
            Family::counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", &[]),
            of(|it| it.cpu_ticks).map(|ticks| ticks / per_second),
        ),
        (Family::gauge("process_open_fds", "Number of open file descriptors.", &[]), stat.and_then(|_| open())),
        (
            Family::gauge("process_max_fds", "Maximum number of open file descriptors.", &[]),
            stat.and_then(|_| getrlimit(Resource::Nofile).current).map(float),
        ),
        (
            Family::gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", &[]),
            of(|it| it.virtual_bytes),
        ),
        (
            Family::gauge("process_resident_memory_bytes", "Resident memory size in bytes.", &[]),
            of(|it| it.resident_pages).map(|pages| pages * float(page_size() as u64)),
        ),
        (
            Family::gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", &[]),
            started,
        ),
        (Family::gauge("process_threads", "Number of OS threads in the process.", &[]), of(|it| it.threads)),
    ];
    let filled = values.into_iter().map(|(mut family, value)| {
        if let Some(value) = value {
            family.add(&[], value);
        }
        family
    });
    filled.collect()
}

/// Reads `/proc/self/stat` (proc_pid_stat(5)). The name of the program, in parentheses, may hold anything; what follows it
/// is counted from its third field on.
fn read(stat: &str) -> Option<Stat> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse().ok();
    Some(Stat {
        cpu_ticks: field(14)? + field(15)?,
        threads: field(20)?,
        started_ticks: field(22)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

/// When the machine was booted, in seconds, of `/proc/stat`.
fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Exact up to 2^53, which none of these comes near.
#[allow(clippy::cast_precision_loss)]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const REST: &str = "S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 9 0 4711 1000000 42 18446744073709551615 1";

    #[rstest]
    #[case::plain("jobset-webhook")]
    #[case::odd("a) R (b")]
    fn the_kernel_is_understood_whatever_the_program_is_called(#[case] name: &str) {
        let wanted =
            Stat { cpu_ticks: 300.0, threads: 9.0, started_ticks: 4711.0, virtual_bytes: 1e6, resident_pages: 42.0 };
        assert_eq!(read(&format!("7 ({name}) {REST}")), Some(wanted));
    }

    #[rstest]
    #[case("")]
    #[case("7 (x) S 1 2")]
    #[case("7 (x) S 1 7 7 0 -1 4194560 1 0 0 0 many")]
    fn what_is_not_understood_is_left_out(#[case] stat: &str) {
        assert_eq!(read(stat), None);
    }

    #[test]
    fn the_time_of_boot_is_found_among_the_rest() {
        assert_eq!(boot_time("cpu 1 2\nbtime 1800000000\nprocesses 3\n"), Some(1.8e9));
        assert_eq!(boot_time("cpu 1 2\n"), None);
    }
}
