//! The server of the startup probe: the kubelet starts the worker once the probe returns 200.
//!
//! A request that arrives while the barrier is closed waits for a moment before it is answered. The kubelet probes once a
//! second; a barrier that is lifted meanwhile is answered at once instead of at the next probe.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_ipv6_v6only;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::timeout;

use crate::barrier::Barrier;
use crate::error::Error;

/// Path that returns 200 while the agent runs.
pub const HEALTH_PATH: &str = "/healthz";
/// Longest wait of a request for a closed barrier. The kubelet's default probe timeout is one second.
const HOLD: Duration = Duration::from_millis(900);
/// Limit of connections; the kubelet needs one. A further connection evicts the oldest one. A connection that sends a request
/// gets its answer within [`HOLD`], so the oldest one is a connection that sends nothing.
const MAX_CONNECTIONS: usize = 16;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// Time limit to read a request, and to write its answer.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest request in bytes, headers included.
const MAX_REQUEST_BYTES: usize = 4096;

/// Listens on all addresses of the Pod, IPv6 and IPv4, whatever `net.ipv6.bindv6only` says: that is a setting of the node.
async fn listen(port: u16) -> io::Result<TcpListener> {
    match listen_on_both(port) {
        // The kernel has no IPv6.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await
        }
        bound => bound,
    }
}

fn listen_on_both(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    // As TcpListener::bind does: an agent that starts again need not wait for connections of the one before it.
    socket.set_reuseaddr(true)?;
    set_ipv6_v6only(&socket, false)?;
    socket.bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))?;
    socket.listen(BACKLOG)
}

/// Starts to answer probes on all of the ports.
///
/// # Errors
/// None of the ports is free. One of several ports may be in use, because the worker may need it.
pub async fn start(ports: &[u16], paths: &[String], barrier: &watch::Sender<Barrier>) -> Result<(), Error> {
    let paths: Arc<[String]> = paths.into();
    let (mut any, mut failed) = (false, None);
    for &port in ports {
        match listen(port).await {
            Ok(listener) => {
                any = true;
                tokio::spawn(serve(listener, Arc::clone(&paths), barrier.subscribe()));
            }
            Err(source) => failed = Some(Error::Listen { port, source }),
        }
    }
    if let Some(error) = failed {
        if !any {
            return Err(error);
        }
        tracing::info!(%error, "answering probes on the other default port only");
    }
    Ok(())
}

/// Answers probes until the agent ends.
async fn serve(listener: TcpListener, paths: Arc<[String]>, barrier: watch::Receiver<Barrier>) {
    let mut served: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // The agent is out of file descriptors or memory. The connection waits in the backlog.
                tracing::warn!(%error, "cannot accept a probe");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (paths, barrier) = (Arc::clone(&paths), barrier.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = answer(stream, &paths, barrier).await {
                tracing::debug!(%error, "a probe failed");
            }
        });
        if served.len() == MAX_CONNECTIONS
            && let Some(oldest) = served.pop_front()
        {
            oldest.abort();
        }
        served.push_back(task.abort_handle());
        // Lets the tasks of accepted connections run first, so that their requests are answered before the next connection.
        yield_now().await;
    }
}

async fn answer(mut stream: TcpStream, paths: &[String], mut barrier: watch::Receiver<Barrier>) -> io::Result<()> {
    let head = timeout(TRANSFER_TIMEOUT, read_head(&mut stream)).await??;
    let (status, body) = match target(&head) {
        None => ("400 Bad Request", "not an HTTP request".to_owned()),
        Some((method, _)) if method != "GET" => ("405 Method Not Allowed", "GET is the only method".to_owned()),
        Some((_, HEALTH_PATH)) => ("200 OK", "ok".to_owned()),
        Some((_, path)) if paths.iter().any(|barrier_path| barrier_path == path) => {
            let lifted = barrier.wait_for(|barrier| matches!(barrier, Barrier::Lifted { .. }));
            let is_lifted = timeout(HOLD, lifted).await.is_ok_and(|lifted| lifted.is_ok());
            (if is_lifted { "200 OK" } else { "503 Service Unavailable" }, barrier.borrow().to_string())
        }
        Some(_) => ("404 Not Found", format!("the barrier is at {}", paths.join(" and "))),
    };
    let length = body.len() + 1;
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}\n"
    );
    timeout(TRANSFER_TIMEOUT, async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    })
    .await?
}

/// Reads up to the empty line that ends the headers. It does not read a body.
async fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(512);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MAX_REQUEST_BYTES {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    Ok(head)
}

/// Method and path of a request, without the query.
fn target(head: &[u8]) -> Option<(&str, &str)> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let path = target.split('?').next()?;
    (version.starts_with("HTTP/1.") && words.next().is_none()).then_some((method, path))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    const CLOSED: Barrier = Barrier::AwaitsSync { epoch: 3, synced: 2 };
    const LIFTED: Barrier = Barrier::Lifted { epoch: Some(3) };
    /// Time limit of a test for one answer.
    const LIMIT: Duration = Duration::from_secs(10);

    async fn start(barrier: Barrier) -> (SocketAddr, watch::Sender<Barrier>) {
        let listener = listen(0).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, receiver) = watch::channel(barrier);
        tokio::spawn(serve(listener, ["/barrier-is-lifted".to_owned()].into(), receiver));
        (SocketAddr::from((Ipv4Addr::LOCALHOST, port)), sender)
    }

    async fn send(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        timeout(LIMIT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        answer
    }

    async fn get(address: SocketAddr, path: &str) -> (String, String) {
        let answer = send(address, format!("GET {path} HTTP/1.1\r\nHost: pod\r\n\r\n").as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
    }

    /// Runs in a network namespace of its own, which a test without root may not have.
    #[test]
    fn both_families_are_listened_on_whatever_node_sets() {
        const INSIDE: &str = "JOBSET_TEST_BINDV6ONLY";
        if std::env::var_os(INSIDE).is_some() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let listener = runtime.block_on(listen(0)).unwrap();
            assert_eq!(rustix::net::sockopt::ipv6_v6only(&listener), Ok(false));
            return;
        }
        let own = std::env::current_exe().unwrap();
        let script = "echo 1 >/proc/sys/net/ipv6/bindv6only || exit 77; exec \"$0\" --exact probe::tests::both_families_are_listened_on_whatever_node_sets";
        let unshared = ["--net", "--", "sh", "-c", script];
        let Ok(output) = std::process::Command::new("unshare").args(unshared).arg(own).env(INSIDE, "1").output() else {
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() || text.is_empty(), "{text}");
    }

    #[tokio::test]
    async fn barrier_closed_returns_503_with_the_epoch() {
        let (address, _barrier) = start(CLOSED).await;
        let body = "waiting in epoch 3 for all Pods of the JobSet; the last synced epoch is 2\n";
        assert_eq!(get(address, "/barrier-is-lifted").await, ("503".into(), body.into()));
    }

    #[tokio::test]
    async fn barrier_lifted_returns_200() {
        let (address, _barrier) = start(LIFTED).await;
        assert_eq!(get(address, "/barrier-is-lifted").await, ("200".into(), "lifted in epoch 3\n".into()));
        assert_eq!(get(address, "/barrier-is-lifted?x=1").await.0, "200");
    }

    #[tokio::test]
    async fn probe_waiting_is_answered_when_the_barrier_lifts() {
        let (address, barrier) = start(CLOSED).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /barrier-is-lifted HTTP/1.1\r\n\r\n").await.unwrap();
        // This request is served after the first one was accepted, so the first one waits for the barrier.
        assert_eq!(get(address, "/healthz").await.0, "200");
        barrier.send_replace(LIFTED);
        let mut answer = String::new();
        timeout(LIMIT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    #[tokio::test]
    async fn request_with_other_path_or_method_is_rejected() {
        let (address, _barrier) = start(LIFTED).await;
        assert_eq!(get(address, "/").await, ("404".into(), "the barrier is at /barrier-is-lifted\n".into()));
        assert_eq!(get(address, "/barrier-is-lifted/").await.0, "404");
        assert_eq!(get(address, "/healthz").await.0, "200");
        let post = send(address, b"POST /barrier-is-lifted HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}").await;
        assert!(post.starts_with("HTTP/1.1 405 "), "{post}");
        let garbage = send(address, b"\x16\x03\x01\r\n\r\n").await;
        assert!(garbage.starts_with("HTTP/1.1 400 "), "{garbage}");
    }

    #[tokio::test]
    async fn probe_is_answered_beside_idle_connections() {
        let (address, _barrier) = start(LIFTED).await;
        let mut silent = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        assert_eq!(get(address, "/barrier-is-lifted").await.0, "200");
    }

    /// As many connections as a backlog holds, which would delay the kubelet for their whole time limit.
    #[tokio::test]
    async fn probe_behind_idle_backlog_is_answered_at_once() {
        let (address, _barrier) = start(LIFTED).await;
        let mut silent = Vec::new();
        for _ in 0..8 * MAX_CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let answer = timeout(TRANSFER_TIMEOUT, get(address, "/barrier-is-lifted")).await;
        assert_eq!(answer.map(|(status, _)| status).ok().as_deref(), Some("200"));
    }
}
