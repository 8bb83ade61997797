//! What the kernel tells of processes (proc(5)), parsed. Pure.

use std::collections::HashMap;
use std::time::Duration;

/// The part of `/proc/<pid>/stat` that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// Process id.
    pub(super) pid: u32,
    /// Name of the program, at most [`COMM`] bytes of it.
    pub(super) comm: String,
    /// Process id of the parent.
    pub(super) parent: u32,
    /// Clock ticks in user and in kernel mode (`utime + stime`), of all threads, ended ones too.
    pub(super) ticks: u64,
}

/// Longest name that the kernel keeps of a program.
const COMM: usize = 15;

impl Stat {
    /// Reads the one line of `/proc/<pid>/stat`.
    pub(super) fn parse(line: &str) -> Option<Self> {
        // The name, in brackets, may itself contain spaces and brackets.
        let (head, tail) = line.rsplit_once(") ")?;
        let (pid, comm) = head.split_once(" (")?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        // proc(5) counts from 1, and the third field is the first after the name.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            comm: comm.to_owned(),
            parent: u32::try_from(field(4)?).ok()?,
            ticks: field(14)? + field(15)?,
        })
    }
}

/// The process of this program among the descendants of `ancestor`, if there is exactly one.
pub(super) fn descendant(processes: &[Stat], ancestor: u32, program: &str) -> Option<u32> {
    let parents: HashMap<u32, u32> = processes.iter().map(|process| (process.pid, process.parent)).collect();
    let descends =
        |pid: u32| std::iter::successors(Some(pid), |pid| parents.get(pid).copied()).any(|pid| pid == ancestor);
    let comm = &program[..program.len().min(COMM)];
    let mut found = processes.iter().filter(|process| process.comm == comm && descends(process.pid));
    let process = found.next()?;
    found.next().is_none().then_some(process.pid)
}

/// The peak of resident memory in KiB: `VmHWM` of `/proc/<pid>/status`.
pub(super) fn peak_rss_kib(status: &str) -> Option<u64> {
    memory_kib(status, "VmHWM")
}

/// Resident memory in KiB: `VmRSS` of `/proc/<pid>/status`.
pub(super) fn rss_kib(status: &str) -> Option<u64> {
    memory_kib(status, "VmRSS")
}

/// The number of threads: `Threads` of `/proc/<pid>/status`.
pub(super) fn threads(status: &str) -> Option<u64> {
    line(status, "Threads")?.parse().ok()
}

fn memory_kib(status: &str, name: &str) -> Option<u64> {
    line(status, name)?.strip_suffix("kB")?.trim().parse().ok()
}

fn line<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Clock ticks that all CPUs together were busy since the machine started: the first line of `/proc/stat`.
pub(super) fn machine_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = fields.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks[..] else { return None };
    Some(user + nice + system + irq + softirq)
}

/// Clock ticks as a time.
pub(super) fn time_of(ticks: u64, ticks_per_second: u64) -> Duration {
    Duration::from_micros(ticks.saturating_mul(1_000_000) / ticks_per_second.max(1))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const LINE: &str = "4711 (kube) apiserver) S 17 4711 4711 0 -1 4194560 1 2 3 4 1200 34 5 6 20 0 9 0 100 7 8 9\n";

    #[test]
    fn stat_of_a_program_with_a_bracket_in_its_name_is_read() {
        let wanted = Stat { pid: 4711, comm: "kube) apiserver".to_owned(), parent: 17, ticks: 1234 };
        assert_eq!(Stat::parse(LINE), Some(wanted));
    }

    #[rstest]
    #[case::nothing("")]
    #[case::no_name("4711 S 17")]
    #[case::cut_off("4711 (a) S 17 4711")]
    fn stat_that_is_not_one_is_none(#[case] line: &str) {
        assert_eq!(Stat::parse(line), None);
    }

    #[rstest]
    #[case::a_grandchild_with_a_long_name("kube-controller-manager", Some(4))]
    #[case::not_a_descendant("etcd", None)]
    #[case::two_of_them("sh", None)]
    #[case::absent("kubelet", None)]
    fn descendant_is_found_by_name_if_there_is_one(#[case] program: &str, #[case] wanted: Option<u32>) {
        let process = |pid, comm: &str, parent| Stat { pid, comm: comm.to_owned(), parent, ticks: 0 };
        let processes = [
            process(1, "init", 0),
            process(2, "e2e-cluster", 1),
            process(3, "sh", 2),
            process(4, "kube-controller", 3),
            process(5, "sh", 3),
            process(6, "etcd", 1),
        ];
        assert_eq!(descendant(&processes, 2, program), wanted);
    }

    #[test]
    fn memory_and_threads_are_read_from_the_status() {
        let status = "Name:\tx\nVmPeak:\t  900000 kB\nVmHWM:\t   61234 kB\nVmRSS:\t   50000 kB\nThreads:\t2\n";
        assert_eq!((peak_rss_kib(status), rss_kib(status), threads(status)), (Some(61234), Some(50000), Some(2)));
        assert_eq!((peak_rss_kib("Name:\tx\n"), rss_kib(""), threads("")), (None, None, None));
    }

    #[test]
    fn machine_is_busy_but_for_idle_waiting_and_stolen_time() {
        let stat = "cpu  10 20 30 4000 500 6 7 80 9 0\ncpu0 1 2 3 4\n";
        assert_eq!(machine_ticks(stat), Some(10 + 20 + 30 + 6 + 7));
        assert_eq!(machine_ticks("intr 5"), None);
    }

    #[test]
    fn ticks_are_hundredths_of_a_second_where_the_kernel_says_100() {
        assert_eq!(time_of(123, 100), Duration::from_millis(1230));
    }
}
