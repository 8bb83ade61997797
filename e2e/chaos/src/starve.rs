//! Has the kernel kill a process for want of memory: the real thing, by the memory limit of the process's own cgroup.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use jobset_harness::process::Process;
use jobset_harness::wait;

/// How long the kernel may take.
const LIMIT: Duration = Duration::from_secs(10);
/// What the cgroup is left above what it uses: enough for the programs that fill it to start.
const HEADROOM: u64 = 8 << 20;
/// Joins the cgroup, fills it, and tells how often the kernel has killed in it. `tail` keeps the last line of an endless
/// one. While the shell is there, the cgroup is, too.
const FILL: &str = r#"echo $$ >"$0/cgroup.procs" && { tail /dev/zero; cat "$0/memory.oom_control"; }"#;

/// Where a process's memory is limited.
#[derive(Debug, PartialEq)]
enum MemoryCgroup {
    /// In a hierarchy of its own.
    V1(PathBuf),
    /// In the one hierarchy.
    V2(PathBuf),
}

/// Lowers the memory limit of a process's cgroup until the kernel kills the process, before any other in the cgroup.
///
/// # Errors
/// If the kernel does not.
pub(super) async fn starve(process: &Process) -> Result<()> {
    let proc = PathBuf::from(format!("/proc/{}", process.pid.as_raw_nonzero()));
    let listed = fs::read_to_string(proc.join("cgroup")).context("cannot read the cgroup of the process")?;
    // The kernel's first choice, also beside a larger one.
    fs::write(proc.join("oom_score_adj"), "1000").context("cannot make the process the first to be killed")?;
    match memory_cgroup(&listed, Path::new("/sys/fs/cgroup"))? {
        MemoryCgroup::V1(dir) => fill(&dir).await?,
        // There, a limit below what is used kills at once.
        MemoryCgroup::V2(dir) => fs::write(dir.join("memory.max"), "0").context("cannot limit the memory")?,
    }
    // One that is killed may still have to be reaped.
    wait::until(LIMIT, "the kernel to kill the process", || async {
        let stat = fs::read_to_string(proc.join("stat")).unwrap_or_default();
        Ok(stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X'])).then_some(()))
    })
    .await
}

async fn fill(dir: &Path) -> Result<()> {
    let used = fs::read_to_string(dir.join("memory.usage_in_bytes")).context("cannot read the memory in use")?;
    let used: u64 = used.trim().parse().context("the memory in use is not a number")?;
    // Also what keeps `tail` from filling the machine.
    fs::write(dir.join("memory.limit_in_bytes"), (used + HEADROOM).to_string()).context("cannot limit the memory")?;
    let filled = Command::new("sh").arg("-c").arg(FILL).arg(dir).stdin(Stdio::null()).output().await?;
    let told = String::from_utf8_lossy(&filled.stdout);
    let kills = told.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse::<u32>().ok());
    if kills.is_none_or(|kills| kills == 0) {
        bail!("no process was killed for want of memory: {told}{}", String::from_utf8_lossy(&filled.stderr));
    }
    Ok(())
}

/// Finds the cgroup that `/proc/<pid>/cgroup` names (cgroups(7)) below where the hierarchies are mounted.
fn memory_cgroup(listed: &str, root: &Path) -> Result<MemoryCgroup> {
    let mut unified = None;
    for line in listed.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let path = path.trim_start_matches('/');
        if controllers.split(',').any(|controller| controller == "memory") {
            return Ok(MemoryCgroup::V1(root.join("memory").join(path)));
        }
        if controllers.is_empty() {
            unified = Some(MemoryCgroup::V2(root.join(path)));
        }
    }
    unified.context("the process is in no cgroup that limits memory")
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{MemoryCgroup, memory_cgroup};

    #[test]
    fn the_memory_hierarchy_wins_over_the_unified_one() {
        let root = Path::new("/cg");
        let hybrid = "9:name=systemd:/x\n4:memory:/node/pod:1/c\n1:cpu,cpuacct:/x\n0::/x\n";
        assert_eq!(memory_cgroup(hybrid, root).unwrap(), MemoryCgroup::V1(PathBuf::from("/cg/memory/node/pod:1/c")));
        assert_eq!(memory_cgroup("0::/node/c\n", root).unwrap(), MemoryCgroup::V2(PathBuf::from("/cg/node/c")));
        assert!(memory_cgroup("3:cpuset:/\n", root).is_err());
    }
}
