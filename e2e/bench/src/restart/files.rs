//! The limit of open files: each simulated agent of the stream has a connection.

use anyhow::{Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files beside those of the agents: connections to the API server, and logs.
const OTHERS: usize = 2_000;

/// Raises the limit as far as the system permits. The relays inherit it.
pub(super) fn raise_limit(agents: usize) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised it stays, and may be enough.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    check(agents, getrlimit(Resource::Nofile).current)
}

fn check(agents: usize, limit: Option<u64>) -> Result<()> {
    let needed = agents + OTHERS;
    let files = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    ensure!(files >= needed, "{agents} agents need {needed} open files, and {files} are permitted: raise ulimit -Hn");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_files_are_an_error() {
        assert!(check(5_000, None).is_ok() && check(5_000, Some(7_000)).is_ok());
        let error = check(5_000, Some(6_999)).unwrap_err().to_string();
        assert_eq!(error, "5000 agents need 7000 open files, and 6999 are permitted: raise ulimit -Hn");
    }
}
