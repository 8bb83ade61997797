//! The processes below this one, and their end.
//!
//! The agent is the reaper of all that its worker leaves behind: the first process of its container, or else a child
//! subreaper. Whatever is started below it, however often it forks away, is a descendant for as long as it lives, and
//! becomes a child when its parent ends. So nothing is left once there is no child. What a person runs in the container
//! with `kubectl exec` has another parent and is left alone.

use std::collections::{BTreeSet, HashMap};
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Sends SIGKILL to all descendants. Those that fork meanwhile leave children, which are found the next time.
pub fn kill_all() {
    for pid in all().into_iter().filter_map(Pid::from_raw) {
        // It may have ended since.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// All descendants, with what they are called, for the person who looks for what does not end.
pub fn names() -> Vec<String> {
    let name = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    all().into_iter().map(|pid| format!("{pid} {}", name(pid).trim())).collect()
}

/// Process ids of all descendants, zombies included.
fn all() -> BTreeSet<i32> {
    let parents: Vec<(i32, i32)> = processes().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    below(i32::try_from(std::process::id()).unwrap_or(1), &parents)
}

fn processes() -> Vec<i32> {
    let entries = match fs::read_dir("/proc") {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(%error, "cannot read /proc to end what the worker has started: mount it in the container");
            return Vec::new();
        }
    };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Parent of a process, if it is still there. The name in the second field may contain anything, parentheses too.
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    fields.nth(1)?.parse().ok()
}

/// Everything below `root`, of these pairs of a process and its parent.
fn below(root: i32, parents: &[(i32, i32)]) -> BTreeSet<i32> {
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
    fn grandchildren_count_and_strangers_do_not() {
        let parents = [(2, 1), (3, 2), (4, 3), (7, 0), (8, 7), (1, 0)];
        assert_eq!(below(1, &parents), BTreeSet::from([2, 3, 4]));
        assert_eq!(below(4, &parents), BTreeSet::new());
    }

    #[test]
    fn a_loop_which_a_reused_process_id_may_show_ends() {
        assert_eq!(below(1, &[(2, 1), (3, 2), (2, 3)]), BTreeSet::from([2, 3]));
    }

    #[test]
    fn the_parent_of_this_process_is_known() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(parent(pid), Some(Pid::as_raw(rustix::process::getppid())));
        assert_eq!(parent(0), None);
    }
}
