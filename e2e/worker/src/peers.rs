//! A worker that needs its peers: it looks them up again and again, and fails if one cannot be reached.

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::config::Config;
use crate::journal::Journal;

/// The pause before each round. The first one gives peers the time to start.
const PAUSE: Duration = Duration::from_secs(3);
/// How long a peer may take to accept a connection.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Exit code of a worker that has lost a peer.
const LOST: u8 = 1;

/// Reaches all peers in rounds, on a thread of its own. Each round is written down.
pub(crate) fn watch(config: &Arc<Config>, journal: &Arc<Journal>) {
    if config.peers.is_empty() {
        return;
    }
    let (config, journal) = (Arc::clone(config), Arc::clone(journal));
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(PAUSE);
            for peer in &config.peers {
                if let Err(error) = reach(peer, config.port) {
                    let _guard = journal.begin_exit(LOST, "peer");
                    eprintln!("jobset-test-worker: cannot reach {peer}: {error}");
                    std::process::exit(LOST.into());
                }
            }
            journal.write("peers", &json!({}));
        }
    });
}

fn reach(name: &str, port: u16) -> io::Result<()> {
    let address = (name, port).to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    TcpStream::connect_timeout(&address, TIMEOUT).map(drop)
}
