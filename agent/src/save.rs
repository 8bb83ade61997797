//! The last moments of a healthy worker whose epoch is over, beside a sidecar: the kubelet would give it two seconds and
//! no preStop hook. So the agent tells it before it exits, and waits until it has saved its state, within a limit.
//!
//! All Pods of the group are told by the same write of the JobSet, and save side by side.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

/// How often the file is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// Most bytes that are read of an answer; its first line says all.
const ANSWER_BYTES: usize = 1024;

/// How the worker is told, and how long it may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Save {
    /// The way.
    pub by: By,
    /// All of the time that it has.
    pub limit: Duration,
}

/// How the worker is told.
#[derive(Clone, Debug, PartialEq)]
pub enum By {
    /// A POST to a port of the own Pod; it answers when it has saved its state.
    Http(Uri),
    /// A file that appears on a shared volume; it is removed when the worker has saved its state.
    File(PathBuf),
}

/// Tells the worker that this epoch is over, and waits until it has saved its state, or the time is over.
pub async fn save(save: &Save, epoch: i32) {
    let start = Instant::now();
    let deadline = start + save.limit;
    let seconds = save.limit.as_secs_f64();
    tracing::info!(epoch, seconds, "the worker may save its state");
    let answer = match &save.by {
        By::Http(uri) => timeout_at(deadline, post(uri, epoch, save.limit)).await,
        By::File(path) => timeout_at(deadline, file(path, epoch, save.limit)).await,
    };
    let took = start.elapsed().as_secs_f64();
    match answer {
        Ok(Ok(())) => tracing::info!(epoch, took, "the worker has saved its state"),
        Ok(Err(cause)) => tracing::warn!(epoch, took, cause, "the worker could not save its state"),
        Err(_) => tracing::warn!(epoch, took, "the worker has not said in time that it has saved its state"),
    }
    forget(save);
}

/// Takes back what an agent of this Pod has told the last worker, if it was ended before it could do so itself: the kubelet
/// ends it when the worker fails meanwhile, and the volume outlives them. The next worker shall not find it.
pub fn forget(save: &Save) {
    if let By::File(path) = &save.by {
        let _ = std::fs::remove_file(path);
    }
}

async fn post(uri: &Uri, epoch: i32, limit: Duration) -> Result<(), String> {
    let host = uri.host().unwrap_or("localhost");
    // No name is looked up: that would take a thread.
    let address: IpAddr = if host == "[::1]" { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    let stream = TcpStream::connect((address, uri.port_u16().unwrap_or(80))).await;
    let mut stream = stream.map_err(|error| format!("cannot connect to {uri}: {error}"))?;
    let body = told(epoch, limit);
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        uri.path_and_query().map_or("/", |path| path.as_str()),
        body.len(),
    );
    let broke = |error| format!("{uri}: {error}");
    stream.write_all(request.as_bytes()).await.map_err(broke)?;
    let mut answer = Vec::new();
    while !answer.contains(&b'\n') && answer.len() < ANSWER_BYTES {
        if stream.read_buf(&mut answer).await.map_err(broke)? == 0 {
            break;
        }
    }
    let line = String::from_utf8_lossy(answer.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
    let status = line.split(' ').nth(1).unwrap_or_default();
    if line.starts_with("HTTP/1.") && status.starts_with('2') { Ok(()) } else { Err(format!("{uri}: {line:?}")) }
}

async fn file(path: &Path, epoch: i32, limit: Duration) -> Result<(), String> {
    let broke = |error| format!("cannot write {}: {error}", path.display());
    let new = path.with_extension("new");
    std::fs::write(&new, told(epoch, limit)).map_err(broke)?;
    std::fs::rename(&new, path).map_err(broke)?;
    while path.exists() {
        sleep(LOOK).await;
    }
    Ok(())
}

/// What the worker is told.
fn told(epoch: i32, limit: Duration) -> String {
    format!("{{\"epoch\":{epoch},\"seconds\":{}}}", limit.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Longest time that any of these tests waits.
    const LIMIT: Duration = Duration::from_secs(10);

    /// A worker that answers one request with this line; what it was asked comes out.
    async fn worker(answer: &'static str) -> (Uri, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                assert!(stream.read_buf(&mut request).await.unwrap() > 0);
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap()
        });
        (format!("http://localhost:{port}/save?x=1").parse().unwrap(), asked)
    }

    #[tokio::test]
    async fn a_worker_is_told_what_is_over_and_how_long_it_has() {
        let (uri, asked) = worker("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(post(&uri, 3, LIMIT).await, Ok(()));
        let request = asked.await.unwrap();
        assert!(request.starts_with("POST /save?x=1 HTTP/1.1\r\nHost: localhost\r\n"), "{request}");
        assert!(request.ends_with("\r\n\r\n{\"epoch\":3,\"seconds\":10}"), "{request}");
    }

    #[tokio::test]
    async fn an_answer_that_is_no_success_is_told() {
        let (uri, _asked) = worker("HTTP/1.1 500 Oh no\r\n\r\n").await;
        assert!(post(&uri, 3, LIMIT).await.unwrap_err().contains("500 Oh no"));
        let (uri, _asked) = worker("hello\r\n").await;
        assert!(post(&uri, 3, LIMIT).await.unwrap_err().contains("hello"));
    }

    #[tokio::test]
    async fn nobody_there_is_no_reason_to_wait() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let uri = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port()).parse().unwrap();
        drop(listener);
        assert!(post(&uri, 3, LIMIT).await.unwrap_err().contains("cannot connect"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_does_not_answer_has_its_time_and_no_more() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let uri = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port()).parse().unwrap();
        let start = Instant::now();
        save(&Save { by: By::Http(uri), limit: LIMIT }, 3).await;
        assert_eq!(start.elapsed().as_secs(), LIMIT.as_secs());
    }

    #[tokio::test]
    async fn a_file_appears_and_its_removal_ends_the_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("save");
        let way = Save { by: By::File(path.clone()), limit: LIMIT };
        let (saved, seen) = tokio::join!(save(&way, 3), async {
            while !path.exists() {
                sleep(Duration::from_millis(1)).await;
            }
            let seen = std::fs::read_to_string(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            seen
        });
        assert_eq!((saved, seen.as_str()), ((), "{\"epoch\":3,\"seconds\":10}"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_nobody_removes_is_removed_for_the_next_worker() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("save");
        save(&Save { by: By::File(path.clone()), limit: LIMIT }, 3).await;
        assert!(!path.exists());
    }
}
