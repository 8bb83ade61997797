//! Exit codes.

use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok = 0,
    /// The JobSet does not run (explain), cannot get to what the user waits for (wait), or a JobSet does not pass admission
    /// (validate).
    No = 1,
    /// The command line or an input is not valid.
    Usage = 2,
    /// The cluster is not reachable, denies the request, or has no such JobSet.
    Cluster = 3,
    /// The time limit has passed (wait).
    Timeout = 4,
    /// Ctrl-C. Shells report 128 plus the number of the signal; SIGINT is 2.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
