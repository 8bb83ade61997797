//! Has the kernel kill a process for want of memory: the real thing, by the memory limit of the process's own cgroup.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use procfs::ProcessCGroups;
use tokio::process::Command;

use jobset_harness::process::Process;
use jobset_harness::wait;

/// How long the kernel may take.
const LIMIT: Duration = Duration::from_mins(1);
/// What the cgroup is left above what it uses: enough for the programs that fill it to start.
const HEADROOM: u64 = 8 << 20;
/// Joins the cgroup, fills it, and prints how often the kernel has killed in it. `tail` keeps the last line of an endless
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
pub(super) async fn starve(process: &Process) -> Result<()> {
    let proc = procfs::process::Process::new(process.pid.as_raw_nonzero().get())?;
    let listed = proc.cgroups().context("cannot read the cgroup of the process")?;
    // The kernel's first choice, also beside a larger one.
    fs::write(format!("/proc/{}/oom_score_adj", proc.pid), "1000")
        .context("cannot make the process the first to be killed")?;
    match memory_cgroup(listed, Path::new("/sys/fs/cgroup"))? {
        MemoryCgroup::V1(dir) => fill(&dir).await?,
        // There, a limit below what is used kills at once.
        MemoryCgroup::V2(dir) => fs::write(dir.join("memory.max"), "0").context("cannot limit the memory")?,
    }
    // One that is killed may still have to be reaped.
    wait::until(LIMIT, "the kernel to kill the process", || async {
        Ok(proc.stat().map_or(true, |stat| matches!(stat.state, 'Z' | 'X')).then_some(()))
    })
    .await
}

async fn fill(dir: &Path) -> Result<()> {
    let used = fs::read_to_string(dir.join("memory.usage_in_bytes")).context("cannot read the memory in use")?;
    let used: u64 = used.trim().parse().context("the memory in use is not a number")?;
    // Also what keeps `tail` from filling the machine.
    fs::write(dir.join("memory.limit_in_bytes"), (used + HEADROOM).to_string()).context("cannot limit the memory")?;
    let filled = Command::new("sh").arg("-c").arg(FILL).arg(dir).stdin(Stdio::null()).output().await?;
    let output = String::from_utf8_lossy(&filled.stdout);
    let kills = output.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse::<u32>().ok());
    if kills.is_none_or(|kills| kills == 0) {
        bail!("no process was killed for want of memory: {output}{}", String::from_utf8_lossy(&filled.stderr));
    }
    Ok(())
}

/// Finds the cgroup that `/proc/<pid>/cgroup` names (cgroups(7)) below where the hierarchies are mounted.
fn memory_cgroup(listed: ProcessCGroups, root: &Path) -> Result<MemoryCgroup> {
    let mut unified = None;
    for cgroup in listed {
        let path = cgroup.pathname.trim_start_matches('/');
        if cgroup.controllers.iter().any(|controller| controller == "memory") {
            return Ok(MemoryCgroup::V1(root.join("memory").join(path)));
        }
        if cgroup.controllers.is_empty() {
            unified = Some(MemoryCgroup::V2(root.join(path)));
        }
    }
    unified.context("the process is in no cgroup that limits memory")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use procfs::{FromBufRead as _, ProcessCGroups};
    use rstest::rstest;

    use super::{MemoryCgroup, memory_cgroup};

    #[rstest]
    #[case::hybrid(
        "9:name=systemd:/x\n4:memory:/node/pod:1/c\n1:cpu,cpuacct:/x\n0::/x\n",
        Some(MemoryCgroup::V1("/cg/memory/node/pod:1/c".into()))
    )]
    #[case::unified("0::/node/c\n", Some(MemoryCgroup::V2("/cg/node/c".into())))]
    #[case::none("3:cpuset:/\n", None)]
    fn memory_hierarchy_wins_over_the_unified_one(#[case] listed: &str, #[case] expected: Option<MemoryCgroup>) {
        let listed = ProcessCGroups::from_buf_read(listed.as_bytes()).unwrap();
        assert_eq!(memory_cgroup(listed, Path::new("/cg")).ok(), expected);
    }
}
