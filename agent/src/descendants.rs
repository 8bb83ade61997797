//! The descendants of this process, found in /proc, to kill the processes that a worker leaves.
//!
//! The agent adopts every orphan of its worker, as the first process of its container or as a child subreaper. So every process
//! that the worker starts stays a descendant of the agent, even after it daemonizes, and becomes a child of the agent when its
//! parent ends. No process is left once the agent has no child. A process of `kubectl exec` has another parent and is not
//! killed.
//!
//! /proc is read by hand. The crate `procfs` adds 27 kB to the agent, and it decodes all 52 fields of a stat line: one field
//! that it cannot decode would hide a process that has to end.

use std::collections::{BTreeSet, HashMap};
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Sends SIGKILL to all descendants. A descendant that forks meanwhile leaves a child, which the next call finds.
pub fn kill_all() {
    for pid in descendants().into_iter().filter_map(Pid::from_raw) {
        // The process may have ended meanwhile, so the error does not matter.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Process id and name of all descendants, for the log.
pub fn names() -> Vec<String> {
    let name = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    descendants().into_iter().map(|pid| format!("{pid} {}", name(pid).trim())).collect()
}

/// Process ids of all descendants, zombies included.
pub fn descendants() -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc").inspect_err(|error| {
        tracing::warn!(%error, "cannot read /proc to kill the processes of the worker; mount it in the container");
    });
    let processes = entries.into_iter().flatten().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: Vec<(i32, i32)> = processes.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    descendants_of(i32::try_from(std::process::id()).unwrap_or(1), &parents)
}

/// Parent of a process; `None` if the process has ended. The name before these fields may contain any character, for example a
/// parenthesis.
fn parent(pid: i32) -> Option<i32> {
    stat_fields(pid)?.get(1)?.parse().ok()
}

/// The fields of a process after its name, in `/proc/PID/stat`: its state, its parent, and so on. `None` if it has ended.
pub fn stat_fields(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    Some(fields.map(str::to_owned).collect())
}

/// All descendants of `root` among these pairs of a process and its parent.
fn descendants_of(root: i32, parents: &[(i32, i32)]) -> BTreeSet<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, parent) in parents {
        children.entry(*parent).or_default().push(*pid);
    }
    let (mut found, mut open) = (BTreeSet::new(), vec![root]);
    while let Some(pid) = open.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            found.insert(child);
            open.push(child);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_include_grandchildren_and_no_other_process() {
        let parents = [(2, 1), (3, 2), (4, 3), (7, 0), (8, 7), (1, 0)];
        assert_eq!(descendants_of(1, &parents), BTreeSet::from([2, 3, 4]));
        assert_eq!(descendants_of(4, &parents), BTreeSet::new());
    }

    #[test]
    fn descendants_in_a_loop_of_reused_process_ids_end() {
        assert_eq!(descendants_of(1, &[(2, 1), (3, 2), (2, 3)]), BTreeSet::from([2, 3]));
    }

    #[test]
    fn parent_is_read_from_proc() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(parent(pid), Some(Pid::as_raw(rustix::process::getppid())));
        assert_eq!(parent(0), None);
    }
}
