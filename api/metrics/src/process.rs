//! The `process_*` metrics that every Prometheus client library has.
//!
//! The collector of the `prometheus` crate is not used: it counts CPU time in whole seconds, and it brings an older
//! procfs and with it a second rustix.

use std::fs;

use procfs::process::{LimitValue, Process, Stat};
use prometheus::Registry;

use crate::family::{Family, register_families};

/// Registers the metrics of this process. They are read from `/proc` at each scrape.
pub(crate) fn register(registry: &Registry) -> prometheus::Result<()> {
    register_families(registry, || families(Readings::of_this_process()))
}

/// What `/proc` says about the process. A value is `None` where `/proc` does not show it.
#[derive(Default)]
struct Readings {
    /// Number of open file descriptors.
    open_fds: Option<u64>,
    /// Soft limit of open file descriptors.
    max_fds: Option<u64>,
    /// CPU time, memory, threads and start time.
    stat: Option<Stat>,
    /// Boot time of the machine, in seconds since the Unix epoch.
    boot_time: Option<u64>,
}

impl Readings {
    fn of_this_process() -> Self {
        // Counted first, since `Process` holds a file descriptor. One of the entries is the directory itself.
        let open_fds = fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count().saturating_sub(1) as u64);
        let process = Process::myself().ok();
        let limits = process.as_ref().and_then(|process| process.limits().ok());
        let max_fds = limits.and_then(|limits| match limits.max_open_files.soft_limit {
            LimitValue::Value(limit) => Some(limit),
            LimitValue::Unlimited => None,
        });
        let stat = process.and_then(|process| process.stat().ok());
        Self { open_fds, max_fds, stat, boot_time: procfs::boot_time_secs().ok() }
    }
}

/// A metric without a value has no series.
fn families(readings: Readings) -> Vec<Family> {
    let Readings { open_fds, max_fds, stat, boot_time } = readings;
    let stat = stat.as_ref();
    let seconds = |ticks: u64| float(ticks) / float(procfs::ticks_per_second());
    let values = [
        (
            Family::counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", &[]),
            stat.map(|stat| seconds(stat.utime + stat.stime)),
        ),
        (Family::gauge("process_open_fds", "Number of open file descriptors.", &[]), open_fds.map(float)),
        (Family::gauge("process_max_fds", "Maximum number of open file descriptors.", &[]), max_fds.map(float)),
        (
            Family::gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", &[]),
            stat.map(|stat| float(stat.vsize)),
        ),
        (
            Family::gauge("process_resident_memory_bytes", "Resident memory size in bytes.", &[]),
            stat.map(|stat| float(stat.rss * procfs::page_size())),
        ),
        (
            Family::gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", &[]),
            stat.zip(boot_time).map(|(stat, boot_time)| float(boot_time) + seconds(stat.starttime)),
        ),
        (
            Family::gauge("process_threads", "Number of OS threads in the process.", &[]),
            stat.and_then(|stat| Some(float(u64::try_from(stat.num_threads).ok()?))),
        ),
    ];
    let filled = values.into_iter().map(|(mut family, value)| {
        if let Some(value) = value {
            family.add(&[], value);
        }
        family
    });
    filled.collect()
}

/// Exact up to 2^53. All values are far below.
#[allow(clippy::cast_precision_loss)]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use prometheus::proto::MetricFamily;

    use super::*;

    #[test]
    fn metrics_without_proc_have_names_and_no_series() {
        let families: Vec<MetricFamily> = families(Readings::default()).into_iter().map(Into::into).collect();
        assert_eq!(families.len(), 7);
        assert!(families.iter().all(|family| family.name().starts_with("process_") && family.get_metric().is_empty()));
    }

    #[test]
    fn metrics_of_this_process_have_one_series_each() {
        let families: Vec<MetricFamily> = families(Readings::of_this_process()).into_iter().map(Into::into).collect();
        assert!(families.iter().all(|family| family.get_metric().len() == 1), "{families:?}");
    }
}
