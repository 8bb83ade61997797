//! The hook by which a healthy worker saves its state before its Pod restarts in place.
//!
//! The kubelet gives the containers of such a Pod two seconds and runs no preStop hook. So a sidecar notifies the worker before
//! it exits, and waits until the worker has saved its state, within a time limit. One write of the JobSet reaches the agents of
//! all Pods, so their workers save at the same time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use crate::epoch_file::replace;

/// Interval between two checks whether the file still exists.
const POLL: Duration = Duration::from_millis(50);
/// Longest part of an answer that is read, in bytes. Only the status line counts.
const MAX_ANSWER_BYTES: usize = 1024;

/// The hook that notifies the worker, and its time limit.
#[derive(Clone, Debug, PartialEq)]
pub struct SaveHook {
    pub kind: SaveHookKind,
    /// Time limit of the hook, from the notification on.
    pub limit: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SaveHookKind {
    /// By a POST to a port of the Pod. The worker answers when it has saved its state.
    Http(Uri),
    /// By a file that the agent creates on a shared volume. The worker removes it when it has saved its state.
    File(PathBuf),
}

impl SaveHook {
    /// Notifies the worker that this epoch ends. Waits until the worker has saved its state, or the time limit has elapsed.
    pub async fn run(&self, epoch: i32) {
        let start = Instant::now();
        let deadline = start + self.limit;
        let seconds = self.limit.as_secs_f64();
        tracing::info!(epoch, seconds, "waiting for the worker to save its state");
        let answer = match &self.kind {
            SaveHookKind::Http(uri) => timeout_at(deadline, post(uri, epoch, self.limit)).await,
            SaveHookKind::File(path) => timeout_at(deadline, create_file(path, epoch, self.limit)).await,
        };
        let took = start.elapsed().as_secs_f64();
        match answer {
            Ok(Ok(())) => tracing::info!(epoch, took, "the worker has saved its state"),
            Ok(Err(cause)) => tracing::warn!(epoch, took, cause, "the worker could not save its state"),
            Err(_) => tracing::warn!(epoch, took, "the worker did not save its state within the time limit"),
        }
        self.remove_file();
    }

    /// Removes the file of the hook, so that the next worker does not find it. A file can be left of an earlier agent: the
    /// kubelet ends an agent whose worker fails during the hook, and the volume outlives both.
    pub fn remove_file(&self) {
        if let SaveHookKind::File(path) = &self.kind {
            let _ = std::fs::remove_file(path);
        }
    }
}

async fn post(uri: &Uri, epoch: i32, limit: Duration) -> Result<(), String> {
    let host = uri.host().unwrap_or("localhost");
    // Resolving the name would take a thread.
    let address: IpAddr = if host == "[::1]" { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    let stream = TcpStream::connect((address, uri.port_u16().unwrap_or(80))).await;
    let mut stream = stream.map_err(|error| format!("cannot connect to {uri}: {error}"))?;
    let body = notification(epoch, limit);
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        uri.path_and_query().map_or("/", |path| path.as_str()),
        body.len(),
    );
    let failed = |error| format!("{uri}: {error}");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    while !answer.contains(&b'\n') && answer.len() < MAX_ANSWER_BYTES {
        if stream.read_buf(&mut answer).await.map_err(failed)? == 0 {
            break;
        }
    }
    let line = String::from_utf8_lossy(answer.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
    let status = line.split(' ').nth(1).unwrap_or_default();
    if line.starts_with("HTTP/1.") && status.starts_with('2') { Ok(()) } else { Err(format!("{uri}: {line:?}")) }
}

async fn create_file(path: &Path, epoch: i32, limit: Duration) -> Result<(), String> {
    let failed = |error| format!("cannot write {}: {error}", path.display());
    replace(path, &notification(epoch, limit)).map_err(failed)?;
    while path.exists() {
        sleep(POLL).await;
    }
    Ok(())
}

fn notification(epoch: i32, limit: Duration) -> String {
    format!("{{\"epoch\":{epoch},\"seconds\":{}}}", limit.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Time limit of a test for one wait.
    const LIMIT: Duration = Duration::from_secs(10);

    /// A worker that answers one request with this text. Returns its URL and the task that yields the request.
    async fn worker(answer: &'static str) -> (Uri, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let request = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                assert!(stream.read_buf(&mut request).await.unwrap() > 0);
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap()
        });
        (format!("http://localhost:{port}/save?x=1").parse().unwrap(), request)
    }

    #[tokio::test]
    async fn post_carries_epoch_and_time_limit() {
        let (uri, request) = worker("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(post(&uri, 3, LIMIT).await, Ok(()));
        let request = request.await.unwrap();
        assert!(request.starts_with("POST /save?x=1 HTTP/1.1\r\nHost: localhost\r\n"), "{request}");
        assert!(request.ends_with("\r\n\r\n{\"epoch\":3,\"seconds\":10}"), "{request}");
    }

    #[tokio::test]
    async fn post_answered_without_success_returns_the_status_line() {
        let (uri, _request) = worker("HTTP/1.1 500 Oh no\r\n\r\n").await;
        assert!(post(&uri, 3, LIMIT).await.unwrap_err().contains("500 Oh no"));
        let (uri, _request) = worker("hello\r\n").await;
        assert!(post(&uri, 3, LIMIT).await.unwrap_err().contains("hello"));
    }

    #[tokio::test]
    async fn post_without_listener_fails_at_once() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let uri = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port()).parse().unwrap();
        drop(listener);
        assert!(post(&uri, 3, LIMIT).await.unwrap_err().contains("cannot connect"));
    }

    #[tokio::test(start_paused = true)]
    async fn hook_without_answer_ends_at_its_limit() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let uri = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port()).parse().unwrap();
        let start = Instant::now();
        SaveHook { kind: SaveHookKind::Http(uri), limit: LIMIT }.run(3).await;
        assert_eq!(start.elapsed().as_secs(), LIMIT.as_secs());
    }

    #[tokio::test]
    async fn hook_ends_when_the_worker_removes_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("save");
        let hook = SaveHook { kind: SaveHookKind::File(path.clone()), limit: LIMIT };
        let ((), content) = tokio::join!(hook.run(3), async {
            while !path.exists() {
                sleep(Duration::from_millis(1)).await;
            }
            let content = std::fs::read_to_string(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            content
        });
        assert_eq!(content, "{\"epoch\":3,\"seconds\":10}");
    }

    #[tokio::test(start_paused = true)]
    async fn hook_file_is_removed_at_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("save");
        SaveHook { kind: SaveHookKind::File(path.clone()), limit: LIMIT }.run(3).await;
        assert!(!path.exists());
    }
}
