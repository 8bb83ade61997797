//! Connections to a peer that may vanish, as when packets between two nodes are dropped.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// How long the system waits for a peer to acknowledge bytes, or to answer when there are none, before it ends the connection.
const PEER_TIME: Duration = Duration::from_secs(30);

/// Has the system send small messages at once, and end the connection if its peer has vanished.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PEER_TIME)?;
    sockopt::set_tcp_keepintvl(stream, PEER_TIME / 3)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    let milliseconds = u32::try_from(PEER_TIME.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, milliseconds)?;
    Ok(())
}
