//! Whose connection it is.
//!
//! Any user of the machine can connect to 127.0.0.1, and other users can learn the secrets of a session: the arguments of a browser
//! that starts have the token, and a server of another user on another port gets the cookie, because cookies do not distinguish
//! ports. So only the connections of the command's own user are let in. Linux tells the user of each connection. Where the system
//! does not, token and cookie alone decide.

use std::net::{SocketAddr, SocketAddrV4};

use rustix::process::geteuid;
use tokio::net::TcpStream;

/// The system's tables of connections, by IPv4 and by IPv6.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// A table is read in parts, while connections come and go. One that is not found is looked for again, this often in all.
const LOOKS: usize = 3;
/// The user who may do everything anyway.
const ROOT: u32 = 0;

/// The users whose connections are let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Users(Vec<u32>);

impl Users {
    /// The command's own user, and the one who called `sudo`.
    pub(super) fn of_process() -> Self {
        let sudo = std::env::var("SUDO_UID").ok();
        Self::new(geteuid().as_raw(), sudo.as_deref())
    }

    fn new(own: u32, sudo: Option<&str>) -> Self {
        let caller = sudo.filter(|_| own == ROOT).and_then(|user| user.parse().ok());
        Self([Some(ROOT), Some(own), caller].into_iter().flatten().collect())
    }

    /// Whether a connection is of another user, by the system's tables.
    pub(super) fn are_strange(&self, stream: &TcpStream) -> bool {
        let (Ok(SocketAddr::V4(peer)), Ok(SocketAddr::V4(server))) = (stream.peer_addr(), stream.local_addr()) else {
            return false;
        };
        let look = || {
            let tables = TABLES.iter().filter_map(|table| std::fs::read_to_string(table).ok());
            tables.into_iter().find_map(|table| owner(&table, peer, server))
        };
        (0..LOOKS).find_map(|_| look()).is_some_and(|owner| !self.0.contains(&owner))
    }
}

/// The user of the connection from `peer` to `server`, by a table of connections.
fn owner(table: &str, peer: SocketAddrV4, server: SocketAddrV4) -> Option<u32> {
    let ends = [peer, server].map(hexadecimal);
    table.lines().find_map(|line| {
        // The line begins: number, local address, remote address, state, queues, timer, retransmissions, user.
        let fields: Vec<&str> = line.split_ascii_whitespace().take(8).collect();
        let [_, local, remote, _, _, _, _, user] = fields[..] else { return None };
        let are_ends = [local, remote].iter().zip(&ends).all(|(found, end)| is_end(found, end));
        are_ends.then(|| user.parse().ok())?
    })
}

/// An address as the tables have it: the bytes of IPv4 as one number of the machine, and the port.
fn hexadecimal(address: SocketAddrV4) -> String {
    format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
}

/// Whether an address of a table is this one: itself, or as the end of an IPv6 address.
fn is_end(found: &str, address: &str) -> bool {
    let mapped = format!("{:08X}", u32::from_ne_bytes([0, 0, 0xff, 0xff]));
    found.strip_suffix(address).is_some_and(|rest| rest.is_empty() || rest == format!("{:016}{mapped}", 0))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1267 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 56033 1 0000000000000000 100 0 0 10 0
   1: 0100007F:D431 0100007F:1267 01 00000000:00000000 00:00000000 00000000  1001        0 56034 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:1267 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1000        0 56035 1 0000000000000000 20 4 30 10 -1
   3: 0000000000000000FFFF00000100007F:D432 0000000000000000FFFF00000100007F:1267 01 00000000:00000000 00:00000000 00000000  1002        0 56036
   4: 00000000000000000000000001000000:D433 00000000000000000000000001000000:1267 01 00000000:00000000 00:00000000 00000000  1003        0 56037
";

    #[rstest]
    #[case::ipv4(54321, Some(1001))]
    #[case::ipv4_over_ipv6(54322, Some(1002))]
    #[case::ipv6(54323, None)]
    #[case::none(54324, None)]
    #[cfg(target_endian = "little")]
    fn owner_is_the_user_of_the_other_end(#[case] port: u16, #[case] expected: Option<u32>) {
        let [peer, server] = [port, 4711].map(|port| SocketAddrV4::new([127, 0, 0, 1].into(), port));
        assert_eq!(owner(TABLE, peer, server), expected);
    }

    #[rstest]
    #[case::user(1000, None, &[0, 1000])]
    #[case::root(0, None, &[0, 0])]
    #[case::sudo(0, Some("1000"), &[0, 0, 1000])]
    #[case::garbage(0, Some("me"), &[0, 0])]
    // Anyone may set the variable for a program of his own, which that is.
    #[case::variable_alone(1000, Some("1001"), &[0, 1000])]
    fn users_are_root_the_own_and_the_caller_of_sudo(
        #[case] own: u32,
        #[case] sudo: Option<&str>,
        #[case] expected: &[u32],
    ) {
        assert_eq!(Users::new(own, sudo).0, expected);
    }
}
