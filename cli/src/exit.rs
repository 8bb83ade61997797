//! Exit codes.

use std::process::ExitCode;

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Ok,
    /// The JobSet does not run (explain), or a JobSet does not pass admission (validate).
    No,
    /// The command line or an input is not valid.
    Usage,
    /// The cluster is not reachable, denies the request, or has no such JobSet.
    Cluster,
    /// Ctrl-C.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Ok => 0,
            Exit::No => 1,
            Exit::Usage => 2,
            Exit::Cluster => 3,
            // Shells report 128 plus the number of the signal; SIGINT is 2.
            Exit::Interrupted => 130,
        })
    }
}
