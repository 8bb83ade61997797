//! Opens ports.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen as listen_on, socket_with, sockopt};

/// Connections that wait to be accepted, as those of agents that come back at once.
const BACKLOG: i32 = 8192;

/// All addresses of the machine, IPv6 and IPv4. [`listen`] listens on IPv4 alone where the kernel has no IPv6.
pub const fn any(port: u16) -> SocketAddr {
    SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))
}

/// Listens on this address. `[::]` stands for all addresses, whatever `net.ipv6.bindv6only` says: clusters have IPv4, IPv6 or both.
/// Clients by IPv4 have mapped addresses (`::ffff:10.0.0.1`) then.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = match address {
        SocketAddr::V6(address) if address.ip().is_unspecified() => on_all(address, listen_on_both),
        address => TcpListener::bind(address),
    }?;
    listen_on(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Listens by IPv4 where `both` says that there is no IPv6: the kernel has none, or no interface has.
fn on_all(address: SocketAddrV6, both: impl Fn(SocketAddrV6) -> io::Result<TcpListener>) -> io::Result<TcpListener> {
    both(address).or_else(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())),
        _ => Err(error),
    })
}

fn listen_on_both(address: SocketAddrV6) -> io::Result<TcpListener> {
    let socket = socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // As the standard library does: a program that starts again need not wait for connections of the one before it.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    bind(&socket, &address)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn port_of(listener: &TcpListener) -> u16 {
        listener.local_addr().unwrap().port()
    }

    #[test]
    fn any_address_takes_connections_of_both_families() {
        let listener = listen(any(0)).unwrap();
        for address in ["127.0.0.1", "::1"] {
            TcpStream::connect((address, port_of(&listener))).unwrap();
        }
    }

    #[test]
    fn any_address_without_ipv6_listens_by_ipv4() {
        for errno in [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL] {
            let address = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0);
            let listener = on_all(address, |_| Err(errno.into())).unwrap();
            TcpStream::connect(("127.0.0.1", port_of(&listener))).unwrap();
        }
    }

    #[test]
    fn port_in_use_is_an_error() {
        let listener = listen(any(0)).unwrap();
        let error = listen(any(port_of(&listener))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
