//! The cgroups of a cluster's nodes: the one trace that outlives the cluster's namespaces.
//!
//! With cgroup v1 the kubelet wants its root cgroup to exist in every hierarchy, with its cpuset filled in.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long the kernel may take to empty the cgroups of killed processes.
const REMOVE_LIMIT: Duration = Duration::from_secs(10);

/// What kind of hierarchies the machine has mounted.
#[derive(Debug, PartialEq, Eq)]
enum Hierarchies {
    V1(Vec<PathBuf>),
    V2(PathBuf),
}

/// Fails when no usable cgroup hierarchy is mounted.
pub(crate) fn check() -> Result<()> {
    hierarchies(&mounts()?).map(|_| ())
}

/// Makes `/<cluster>/<node>` in every hierarchy; what an earlier owner of the name left is removed before.
pub(super) fn create(cluster: &str, nodes: &[String]) -> Result<()> {
    remove(cluster)?;
    match hierarchies(&mounts()?)? {
        Hierarchies::V1(roots) => {
            for root in roots {
                let above = root.join(cluster);
                create_v1(&above)?;
                nodes.iter().try_for_each(|node| create_v1(&above.join(node)))?;
            }
        }
        Hierarchies::V2(root) => {
            let above = root.join(cluster);
            create_v2(&above)?;
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

/// Every hierarchy, also one that no node was told of: on a machine with both versions, runc makes cgroups in the second,
/// too.
fn roots() -> Result<Vec<PathBuf>> {
    let mounts = mounts()?;
    let of_kind = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind) = (fields.next()?, fields.next()?);
        kind.starts_with("cgroup").then(|| PathBuf::from(path))
    };
    Ok(mounts.lines().filter_map(of_kind).collect())
}

fn mounts() -> Result<String> {
    fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")
}

fn hierarchies(mounts: &str) -> Result<Hierarchies> {
    let mut first = Vec::new();
    let mut second = None;
    let mut has_memory = false;
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, path, kind, options, ..] = fields.as_slice() else { continue };
        match *kind {
            "cgroup" => {
                has_memory |= options.split(',').any(|option| option == "memory");
                first.push(PathBuf::from(path));
            }
            "cgroup2" if *path == "/sys/fs/cgroup" => second = Some(PathBuf::from(path)),
            _ => {}
        }
    }
    match second {
        Some(root) => Ok(Hierarchies::V2(root)),
        None if has_memory => Ok(Hierarchies::V1(first)),
        None => bail!(
            "no cgroup hierarchies are mounted below /sys/fs/cgroup: boot with systemd, or mount -t cgroup2 none \
             /sys/fs/cgroup"
        ),
    }
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
    use std::path::PathBuf;

    use super::{Hierarchies, hierarchies};

    #[test]
    fn v2_at_the_root_wins_and_a_hybrid_counts_as_v1() {
        let hybrid = "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(hierarchies(hybrid).unwrap(), Hierarchies::V1(vec![PathBuf::from("/sys/fs/cgroup/memory")]));
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        assert_eq!(hierarchies(unified).unwrap(), Hierarchies::V2(PathBuf::from("/sys/fs/cgroup")));
        assert!(hierarchies("proc /proc proc rw 0 0\n").is_err());
    }
}
