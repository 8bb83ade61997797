//! Options of sockets.

use std::net::SocketAddr;

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket};
use tracing::warn;

/// Connections that wait to be accepted: agents that come back at once.
const BACKLOG: u32 = 8192;
/// File descriptors of the program, beside those of agents.
const OTHER_FILES: u64 = 1024;

/// Listens. `flag` is the flag that sets the address.
pub(crate) fn listen(address: SocketAddr, flag: &str, whom: &str) -> anyhow::Result<TcpListener> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    open().with_context(|| {
        format!("cannot listen on {address} for {whom}: is the port taken? choose another with --{flag}")
    })
}

/// Raises the limit of open files as far as the system permits. Warns if it is too low for so many agents.
pub(crate) fn raise_file_limit(agents: usize) {
    let limit = getrlimit(Resource::Nofile);
    // The limit stays as it is where it cannot be raised, and the warning tells.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok();
    let files = if raised { limit.maximum } else { limit.current };
    let needed = agents as u64 + OTHER_FILES;
    if let Some(files) = files.filter(|files| *files < needed) {
        warn!(files, needed, "the limit of open files is too low for --max-connections");
    }
}
