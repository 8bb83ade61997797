//! An API server that answers as a test says, and the agent's program that asks it.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use jobset_harness::wait::{self, Seen};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

/// How long something may take on a machine that runs all tests at once.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// What a watch on a JobSet says at first, and that this is all that there is.
pub(crate) const STATE: &str = r#"{"type": "ADDED", "object": {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
    "metadata": {"name": "a", "uid": "u", "resourceVersion": "5"},
    "spec": {"failurePolicy": {"restartStrategy": "InPlaceRestart"}}}}"#;
pub(crate) const END: &str = r#"{"type": "BOOKMARK", "object": {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
    "metadata": {"resourceVersion": "6", "annotations": {"k8s.io/initial-events-end": "true"}}}}"#;

/// An answer, and whether the connection then stays open.
pub(crate) struct Answer {
    text: String,
    stays: bool,
}

impl Answer {
    /// A refusal with this code.
    pub(crate) fn refusal(code: u16, reason: &str) -> Self {
        let status = format!(r#"{{"kind": "Status", "status": "Failure", "code": {code}, "reason": "{reason}"}}"#);
        Self { text: head(&format!("{code} {reason}")) + &status, stays: false }
    }

    /// What is asked for: these lines. The stream of a watch stays open.
    pub(crate) fn of(lines: &[&str], stays: bool) -> Self {
        let lines: Vec<String> = lines.iter().map(|line| line.replace('\n', " ")).collect();
        Self { text: head("200 OK") + &lines.join("\n") + "\n", stays }
    }
}

fn head(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
}

/// What was asked: the head of the request, and when.
pub(crate) type Asked = (String, Instant);

pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    pub(crate) folder: TempDir,
}

impl Fake {
    /// One that gives these answers.
    pub(crate) async fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let fake = Self { address: listener.local_addr()?, asked: Arc::default(), folder: tempfile::tempdir()? };
        let (asked, answer) = (Arc::clone(&fake.asked), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
                tokio::spawn(async move { serve(stream, &asked, &*answer).await });
            }
        });
        Ok(fake)
    }

    /// What it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A file of the test.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(std::fs::write(self.folder.path().join(name), text)?)
    }

    /// Starts the agent, with a kubeconfig for this server whose user is this. It supervises, so that it needs no port.
    pub(crate) fn agent(&self, user: &str) -> Result<Child> {
        let (address, folder) = (self.address, self.folder.path());
        self.write(
            "kubeconfig",
            &format!(
                "{{apiVersion: v1, kind: Config, current-context: fake,
                contexts: [{{name: fake, context: {{cluster: fake, user: fake}}}}],
                clusters: [{{name: fake, cluster: {{server: 'http://{address}'}}}}], users: [{{name: fake, user: {user}}}]}}"
            ),
        )?;
        Command::new(env!("CARGO_BIN_EXE_jobset-agent"))
            .args(["supervise", "--", "true"])
            .env_clear()
            .envs([("NAMESPACE", "default"), ("POD_NAME", "a-0"), ("JOBSET_NAME", "a")])
            .env("KUBECONFIG", folder.join("kubeconfig"))
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(folder.join("stderr"))?)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the agent")
    }

    /// What the agent has said.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }

    /// Waits until the agent says this.
    pub(crate) async fn says(&self, wanted: &str) -> Result<()> {
        wait::until_seen(LIMIT, format!("{wanted:?} from the agent"), || async {
            let said = self.said();
            Ok(if said.contains(wanted) { Seen::Yes(()) } else { Seen::NotYet(said) })
        })
        .await
    }
}

async fn serve(mut stream: TcpStream, asked: &Mutex<Vec<Asked>>, answer: &(impl Fn(&str) -> Answer + Sync)) {
    let mut request = Vec::new();
    let head = loop {
        if let Some(end) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break String::from_utf8_lossy(&request[..end]).into_owned();
        }
        if !matches!(stream.read_buf(&mut request).await, Ok(1..)) {
            return;
        }
    };
    // The body of a report, which ends so: unread, it would reset the connection.
    while head.starts_with("PATCH") && !request.ends_with(b"}}}") {
        if !matches!(stream.read_buf(&mut request).await, Ok(1..)) {
            return;
        }
    }
    let Answer { text, stays } = answer(&head);
    asked.lock().unwrap_or_else(PoisonError::into_inner).push((head, Instant::now()));
    // The agent may have gone.
    let _ = stream.write_all(text.as_bytes()).await;
    if stays {
        std::future::pending::<()>().await;
    }
}
