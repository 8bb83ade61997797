//! The folder of a cluster: claimed by one owner, and afterwards removed or thinned to its logs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::layout::{Layout, Ready};
use crate::paths;
use crate::progress::progress;

/// The kernel's limit on the path of a socket, without room for the longest name in a cluster's folder.
const LONGEST_DIR: usize = 107 - "/node-200/containerd.sock.ttrpc".len();
/// How many folders of ended clusters stay for who looks into a failure.
const KEPT: usize = 8;
/// The file that says how to use a running cluster.
const RECORD: &str = "cluster.json";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Remove,
    /// Its logs, certificates and configuration, in its folder.
    KeepLogs,
}

/// A new folder for a cluster below the target folder.
pub fn new_dir() -> PathBuf {
    let name: String = std::iter::repeat_with(fastrand::lowercase).take(6).collect();
    paths::clusters().join(name)
}

/// Makes the folder; the lock is held as long as the returned file is open.
pub(super) fn claim(dir: &Path) -> Result<File> {
    if dir.as_os_str().len() > LONGEST_DIR {
        bail!(
            "the path of the cluster's folder is too long for sockets in it (at most {LONGEST_DIR} bytes): {}; choose a \
             shorter one with CARGO_TARGET_DIR or --dir",
            dir.display()
        );
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let is_empty = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?.next().is_none();
    if !is_empty && !["lock", "logs", "pki", RECORD].iter().any(|name| dir.join(name).exists()) {
        bail!("{} is not empty and was not a cluster's folder: choose another one", dir.display());
    }
    let lock = File::create(dir.join("lock")).context("cannot create the folder's lock")?;
    if lock.try_lock().is_err() {
        bail!("a cluster runs in {} already: end it with e2e-cluster down --dir {0}", dir.display());
    }
    remove_content(dir)?;
    prune()?;
    Ok(lock)
}

/// Writes down how to use the cluster.
pub(super) fn record(ready: &Ready) -> Result<()> {
    let path = ready.dir.join(RECORD);
    fs::write(&path, serde_json::to_vec_pretty(ready)?).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads how to use the cluster in `dir`.
pub(super) fn recorded(dir: &Path) -> Result<Ready> {
    let path = dir.join(RECORD);
    let text = fs::read(&path).with_context(|| format!("no cluster runs in {}", dir.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not a cluster's record", path.display()))
}

/// Removes the folder, or all of it but logs, certificates and configuration.
pub(super) fn clear(layout: &Layout, ending: Ending) -> Result<()> {
    if ending == Ending::Remove {
        return paths::remove(&layout.dir);
    }
    for node in &layout.nodes {
        let kept = layout.dir.join("logs").join(format!("pods-{}", node.name));
        // A node that never came up has none.
        let _ = fs::rename(node.dir.join("pod-logs"), kept);
        paths::remove(&node.dir)?;
    }
    for name in ["etcd", "tmp", "sysctl"] {
        paths::remove(&layout.dir.join(name))?;
    }
    for name in [RECORD, "supervisor.sock"] {
        let _ = fs::remove_file(layout.dir.join(name));
    }
    progress(&format!("the cluster's logs are kept in {}", layout.dir.join("logs").display()));
    Ok(())
}

/// Removes what an ended cluster left in a folder that is claimed again.
fn remove_content(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)?.filter_map(Result::ok) {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            paths::remove(&path)?;
        } else if entry.file_name() != "lock" {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Removes all but the newest folders of ended clusters.
fn prune() -> Result<()> {
    let Ok(entries) = fs::read_dir(paths::clusters()) else { return Ok(()) };
    let mut ended: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| File::open(entry.path().join("lock")).is_ok_and(|lock| lock.try_lock_shared().is_ok()))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    ended.sort();
    let surplus = ended.len().saturating_sub(KEPT);
    ended.iter().take(surplus).try_for_each(|(_, dir)| paths::remove(dir))
}
