//! Exit codes.

use std::process::ExitCode;

/// What a command has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what it was asked for, and the answer is yes.
    Ok,
    /// The answer is no: the JobSet does not run, a JobSet does not pass admission.
    No,
    /// The command line or an input cannot be understood.
    Usage,
    /// The cluster is not reachable, refuses the request, or has no such JobSet.
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
            // 128 and the number of SIGINT, as shells have it.
            Exit::Interrupted => 130,
        })
    }
}
