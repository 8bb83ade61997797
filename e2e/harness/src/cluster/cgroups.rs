//! The cgroups of a cluster's nodes: the one trace that outlives the cluster's namespaces.
//!
//! With cgroup v1 the kubelet wants its root cgroup to exist in every hierarchy, with its cpuset filled in.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use procfs::MountEntry;

/// How long the kernel may take to empty the cgroups of killed processes.
const REMOVE_LIMIT: Duration = Duration::from_secs(30);

/// Files with the weight of a cgroup, and that of a cluster's Pods: ten times that of one of the many threads which they share the
/// CPUs with here, and not in a cluster of machines.
const WEIGHTS: [(&str, &str); 2] = [("cpu.shares", "10240"), ("cpu.weight", "1000")];

/// What kind of hierarchies the machine has mounted.
#[derive(Debug, PartialEq, Eq)]
enum Hierarchies {
    V1(Vec<PathBuf>),
    V2(PathBuf),
}

/// Fails when no usable cgroup hierarchy is mounted.
pub(crate) fn check() -> Result<()> {
    hierarchies(mounts()?).map(|_| ())
}

/// Makes `/<cluster>/<node>` in every hierarchy; what an earlier owner of the name left is removed before.
pub(super) fn create(cluster: &str, nodes: &[String]) -> Result<()> {
    remove(cluster)?;
    match hierarchies(mounts()?)? {
        Hierarchies::V1(roots) => {
            for root in roots {
                let above = root.join(cluster);
                create_v1(&above)?;
                weigh(&above)?;
                nodes.iter().try_for_each(|node| create_v1(&above.join(node)))?;
            }
        }
        Hierarchies::V2(root) => {
            let above = root.join(cluster);
            create_v2(&above)?;
            weigh(&above)?;
            nodes.iter().try_for_each(|node| create_v2(&above.join(node)))?;
        }
    }
    Ok(())
}

/// Removes the cluster's cgroups in every hierarchy; its processes must be dead or dying.
pub(super) fn remove(cluster: &str) -> Result<()> {
    let roots = roots()?;
    let start = Instant::now();
    for dir in roots.iter().map(|root| root.join(cluster)) {
        while let Err(error) = remove_tree(&dir) {
            if start.elapsed() > REMOVE_LIMIT {
                let limit = REMOVE_LIMIT.as_secs();
                bail!("the cgroup {} still has processes after {limit} s: {error}", dir.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// The names of the cgroups at the top of any hierarchy that begin with `prefix`.
pub(super) fn names(prefix: &str) -> Result<BTreeSet<String>> {
    let entries = roots()?.into_iter().filter_map(|root| fs::read_dir(root).ok()).flatten().filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| name.starts_with(prefix)).collect())
}

/// Every hierarchy, also one that the nodes do not use: on a machine with both versions, runc makes cgroups in the second,
/// too.
fn roots() -> Result<Vec<PathBuf>> {
    let hierarchies = mounts()?.into_iter().filter(|mount| mount.fs_vfstype.starts_with("cgroup"));
    Ok(hierarchies.map(|mount| mount.fs_file.into()).collect())
}

fn mounts() -> Result<Vec<MountEntry>> {
    procfs::mounts().context("cannot read the mounts of this machine")
}

fn hierarchies(mounts: Vec<MountEntry>) -> Result<Hierarchies> {
    let mut first = Vec::new();
    let mut has_memory = false;
    for mount in mounts {
        match mount.fs_vfstype.as_str() {
            "cgroup" => {
                has_memory |= mount.fs_mntops.contains_key("memory");
                first.push(mount.fs_file.into());
            }
            "cgroup2" if mount.fs_file == "/sys/fs/cgroup" => return Ok(Hierarchies::V2(mount.fs_file.into())),
            _ => {}
        }
    }
    if !has_memory {
        bail!(
            "no cgroup hierarchies are mounted below /sys/fs/cgroup: boot with systemd, or mount -t cgroup2 none \
             /sys/fs/cgroup"
        );
    }
    Ok(Hierarchies::V1(first))
}

fn create_v1(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create the cgroup {}", dir.display()))?;
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let Some(above) = dir.parent().map(|above| above.join(file)) else { continue };
        if above.exists() {
            let value = fs::read_to_string(&above).with_context(|| format!("cannot read {}", above.display()))?;
            fs::write(dir.join(file), value.trim())
                .with_context(|| format!("cannot fill {file} in {}", dir.display()))?;
        }
    }
    Ok(())
}

/// Gives the Pods of a cluster their weight, in the hierarchy that has one.
fn weigh(dir: &Path) -> Result<()> {
    for (file, weight) in WEIGHTS.map(|(file, weight)| (dir.join(file), weight)) {
        if file.exists() {
            fs::write(&file, weight).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(())
}

/// A child gets the controllers that its parent hands down, so they are enabled in the parent first.
fn create_v2(dir: &Path) -> Result<()> {
    let above = dir.parent().unwrap_or(dir);
    let available = fs::read_to_string(above.join("cgroup.controllers"))
        .with_context(|| format!("cannot read the controllers of {}", above.display()))?;
    for controller in available.split_whitespace() {
        // Some controllers cannot be handed down; the kubelet says which ones it misses.
        let _ = fs::write(above.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot create the cgroup {}", dir.display()))
}

fn remove_tree(dir: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use procfs::FromBufRead as _;
    use rstest::rstest;

    use super::{Hierarchies, MountEntry, hierarchies};

    #[rstest]
    #[case::hybrid(
        "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
        Some(Hierarchies::V1(vec!["/sys/fs/cgroup/memory".into()]))
    )]
    #[case::unified("cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n", Some(Hierarchies::V2("/sys/fs/cgroup".into())))]
    #[case::none("proc /proc proc rw 0 0\n", None)]
    fn hierarchies_v2_at_the_root_wins_over_v1(#[case] mounts: &str, #[case] expected: Option<Hierarchies>) {
        let mounts = Vec::<MountEntry>::from_buf_read(mounts.as_bytes()).unwrap();
        assert_eq!(hierarchies(mounts).ok(), expected);
    }
}
