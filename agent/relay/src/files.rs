//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// File descriptors of the program, beside those of agents.
const OTHER_FILES: u64 = 1024;

/// Raises the limit of open files as far as the system permits. Warns if it is too low for so many agents.
pub(crate) fn raise_limit(agents: usize) {
    let limit = getrlimit(Resource::Nofile);
    // The limit stays as it is where it cannot be raised, and the warning tells.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok();
    let files = if raised { limit.maximum } else { limit.current };
    let needed = agents as u64 + OTHER_FILES;
    if let Some(files) = files.filter(|files| *files < needed) {
        warn!(files, needed, "the limit of open files is too low for --max-connections");
    }
}
