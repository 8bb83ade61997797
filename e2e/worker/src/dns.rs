//! IPv4 addresses of a name, as a program in the container would find them: through resolv.conf and its search domains.
//!
//! Written out because the binary is static: the C library's resolver needs its shared objects.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for one server's answer.
const LIMIT: Duration = Duration::from_secs(2);
/// How often a server is asked.
const ATTEMPTS: u16 = 2;
/// Answers may be as long as this; said to the server by EDNS.
const ANSWER_BYTES: u16 = 4096;
const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;
const NXDOMAIN: u8 = 3;

/// The part of resolv.conf that is heeded.
#[derive(Debug, PartialEq)]
struct ResolvConf {
    servers: Vec<IpAddr>,
    search: Vec<String>,
    ndots: usize,
}

impl ResolvConf {
    fn parse(text: &str) -> Self {
        let mut conf = Self { servers: Vec::new(), search: Vec::new(), ndots: 1 };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    conf.servers.extend(words.next().and_then(|server| server.parse::<IpAddr>().ok()));
                }
                Some("search" | "domain") => conf.search = words.map(str::to_owned).collect(),
                Some("options") => {
                    let ndots = words.filter_map(|word| word.strip_prefix("ndots:")?.parse().ok()).next_back();
                    conf.ndots = ndots.unwrap_or(conf.ndots);
                }
                _ => {}
            }
        }
        conf
    }

    /// The names to ask for, in order.
    fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let searched = self.search.iter().map(|domain| format!("{name}.{}", domain.trim_end_matches('.')));
        if name.matches('.').count() >= self.ndots {
            std::iter::once(name.to_owned()).chain(searched).collect()
        } else {
            searched.chain(std::iter::once(name.to_owned())).collect()
        }
    }
}

/// The addresses of a name, sorted; none if it does not exist.
///
/// # Errors
/// When resolv.conf cannot be read, no server answers, or an answer cannot be read.
pub(crate) fn resolve(resolv_conf: &Path, name: &str) -> io::Result<Vec<Ipv4Addr>> {
    let conf = ResolvConf::parse(&fs::read_to_string(resolv_conf)?);
    if conf.servers.is_empty() {
        return Err(io::Error::new(ErrorKind::NotFound, "resolv.conf names no server"));
    }
    for candidate in conf.candidates(name) {
        let mut addresses = ask_all(&conf.servers, &candidate)?;
        if !addresses.is_empty() {
            addresses.sort_unstable();
            return Ok(addresses);
        }
    }
    Ok(Vec::new())
}

fn ask_all(servers: &[IpAddr], name: &str) -> io::Result<Vec<Ipv4Addr>> {
    let mut failed = io::Error::from(ErrorKind::TimedOut);
    for attempt in 0..ATTEMPTS {
        for server in servers {
            match ask(SocketAddr::new(*server, 53), name, attempt) {
                Ok(addresses) => return Ok(addresses),
                Err(error) => failed = error,
            }
        }
    }
    Err(failed)
}

fn ask(server: SocketAddr, name: &str, attempt: u16) -> io::Result<Vec<Ipv4Addr>> {
    let any: SocketAddr = if server.is_ipv6() { ([0_u16; 8], 0).into() } else { ([0_u8; 4], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    // The port is random, and nobody lies in a test's cluster: the process and the attempt tell answers apart.
    let id = u16::try_from(std::process::id() & 0x7fff).unwrap_or_default() ^ (attempt << 15);
    socket.send(&query(id, name)?)?;
    let mut answer = [0; ANSWER_BYTES as usize];
    let deadline = Instant::now() + LIMIT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let length = socket.recv(&mut answer)?;
        if answer.get(..2) == Some(&id.to_be_bytes()) {
            return addresses(answer.get(..length).unwrap_or_default());
        }
    }
}

/// A query for the IPv4 addresses of an absolute name.
fn query(id: u16, name: &str) -> io::Result<Vec<u8>> {
    let mut message = Vec::with_capacity(name.len() + 32);
    // Recursion desired; one question, one additional record (EDNS).
    for word in [id, 0x0100, 1, 0, 0, 1] {
        message.extend(word.to_be_bytes());
    }
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length));
        let length =
            length.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, format!("{name:?} is not a name")))?;
        message.push(length);
        message.extend(label.as_bytes());
    }
    message.push(0);
    for word in [TYPE_A, CLASS_IN] {
        message.extend(word.to_be_bytes());
    }
    // EDNS: the root's name, type OPT, the size of answers instead of a class, no flags, no data.
    message.push(0);
    for word in [41, ANSWER_BYTES, 0, 0, 0] {
        message.extend(word.to_be_bytes());
    }
    Ok(message)
}

/// The IPv4 addresses in an answer; aliases are followed by the server.
fn addresses(answer: &[u8]) -> io::Result<Vec<Ipv4Addr>> {
    match answer.get(3).map(|flags| flags & 0x0f) {
        Some(NXDOMAIN) => Ok(Vec::new()),
        Some(code @ 1..) => Err(io::Error::other(format!("the DNS server answered with error code {code}"))),
        _ => read_addresses(answer).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "malformed DNS answer")),
    }
}

fn read_addresses(answer: &[u8]) -> Option<Vec<Ipv4Addr>> {
    let word = |at: usize| Some(u16::from_be_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let mut at = 12;
    for _ in 0..word(4)? {
        at = skip_name(answer, at)? + 4;
    }
    let mut found = Vec::new();
    for _ in 0..word(6)? {
        at = skip_name(answer, at)?;
        let (kind, length) = (word(at)?, usize::from(word(at + 8)?));
        let data = answer.get(at + 10..at + 10 + length)?;
        if kind == TYPE_A {
            found.push(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?));
        }
        at += 10 + length;
    }
    Some(found)
}

/// The place after a name, which ends with an empty label or with a pointer.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            pointer if pointer & 0xc0 == 0xc0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBELETS: &str =
        "search ml.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n";

    #[test]
    fn kubelets_file_is_read() {
        let conf = ResolvConf::parse(KUBELETS);
        assert_eq!((conf.servers.len(), conf.ndots), (1, 5));
        assert_eq!(
            conf.candidates("train-workers-0-1.train"),
            [
                "train-workers-0-1.train.ml.svc.cluster.local",
                "train-workers-0-1.train.svc.cluster.local",
                "train-workers-0-1.train.cluster.local",
                "train-workers-0-1.train",
            ]
        );
        assert_eq!(conf.candidates("a.b.c.d.e.f")[0], "a.b.c.d.e.f");
        assert_eq!(conf.candidates("kubernetes.default."), ["kubernetes.default"]);
    }

    /// Answer of CoreDNS to "t.ml": a question, an alias, two addresses, an EDNS record.
    fn answer(code: u8) -> Vec<u8> {
        let mut message = vec![0, 7, 0x81, 0x80 | code, 0, 1, 0, 3, 0, 0, 0, 1];
        message.extend(b"\x01t\x02ml\0\0\x01\0\x01");
        message.extend(b"\xc0\x0c\0\x05\0\x01\0\0\0\x05\0\x04\x01u\xc0\x0e");
        message.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\x0a\x00\x01\x02");
        message.extend(b"\x01u\xc0\x0e\0\x01\0\x01\0\0\0\x05\0\x04\x0a\x00\x02\x03");
        message.extend(b"\0\0\x29\x10\0\0\0\0\0\0\0");
        message
    }

    #[test]
    fn addresses_of_an_answer_are_found() {
        assert_eq!(addresses(&answer(0)).unwrap(), [Ipv4Addr::new(10, 0, 1, 2), Ipv4Addr::new(10, 0, 2, 3)]);
        assert_eq!(addresses(&answer(NXDOMAIN)).unwrap(), Vec::<Ipv4Addr>::new());
        assert!(addresses(&answer(2)).is_err());
    }

    #[test]
    fn truncated_answer_is_an_error() {
        let whole = answer(0);
        // The EDNS record at the end is not read.
        for length in 0..whole.len() - 11 {
            assert!(addresses(&whole[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn query_carries_the_name() {
        let message = query(7, "t.ml").unwrap();
        assert_eq!(message[12..22], b"\x01t\x02ml\0\0\x01\0\x01"[..]);
        assert!(query(7, "").is_err() && query(7, "a..b").is_err() && query(7, &"a".repeat(64)).is_err());
    }
}
