//! The limit of memory of the relay's control group, and how many agents it holds.
//!
//! A relay that exceeds it is killed, with all its connections, again and again. So it serves no more agents than fit.

use std::fs::read_to_string;
use std::num::NonZeroUsize;
use std::path::Path;

use tracing::warn;

/// Bytes that an agent may take: its connection while thousands connect at once, and half a frame and half a TLS record that it sends and
/// never ends.
pub const OF_AGENT: u64 = 54_000;
/// Bytes beside those of agents: the program, and what waits to be sent.
const OF_RELAY: u64 = 64_000_000;

/// The number of agents, or as many as the memory of this control group holds, if they are fewer.
pub(crate) fn lowered(agents: NonZeroUsize) -> NonZeroUsize {
    let Some(limit) = limit(Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup")) else { return agents };
    let most = within(limit);
    if most < agents {
        warn!(
            max_connections = agents,
            memory_limit = limit,
            served = most,
            "the memory limit is too low for --max-connections: serving fewer agents"
        );
    }
    agents.min(most)
}

/// How many agents so many bytes hold. One at least.
fn within(limit: u64) -> NonZeroUsize {
    let agents = usize::try_from(limit.saturating_sub(OF_RELAY) / OF_AGENT).unwrap_or(usize::MAX);
    NonZeroUsize::new(agents).unwrap_or(NonZeroUsize::MIN)
}

/// The lowest limit of the control group (version 2) that `own` names, and of those above it. `None` if there is none, or it cannot be
/// read. In a container, its own group is the root.
fn limit(own: &Path, root: &Path) -> Option<u64> {
    let own = read_to_string(own).ok()?;
    let group = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limits = Path::new(group).ancestors().filter_map(|group| {
        let limit = read_to_string(root.join(group).join("memory.max")).ok()?;
        limit.trim().parse().ok()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::default_of_the_chart(1100 << 20, 20_174)]
    #[case::nothing(0, 1)]
    #[case::one(OF_RELAY + OF_AGENT, 1)]
    #[case::two(OF_RELAY + 2 * OF_AGENT, 2)]
    fn agents_fit_into_memory(#[case] limit: u64, #[case] agents: usize) {
        assert_eq!(within(limit).get(), agents);
    }

    #[rstest]
    #[case::container("0::/\n", &[("", "1073741824\n")], Some(1 << 30))]
    #[case::no_limit("0::/\n", &[("", "max\n")], None)]
    #[case::no_file("0::/\n", &[], None)]
    #[case::group_below_its_pod("0::/pod/relay\n", &[("pod", "1000"), ("pod/relay", "2000")], Some(1000))]
    #[case::version_1("3:memory:/pod\n", &[("pod", "1000")], None)]
    fn lowest_limit_of_control_groups_counts(
        #[case] own: &str,
        #[case] limits: &[(&str, &str)],
        #[case] expected: Option<u64>,
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (group, limit) in limits {
            std::fs::create_dir_all(folder.path().join(group)).unwrap();
            std::fs::write(folder.path().join(group).join("memory.max"), limit).unwrap();
        }
        let file = folder.path().join("cgroup");
        std::fs::write(&file, own).unwrap();
        assert_eq!(limit(&file, folder.path()), expected);
    }
}
