//! A fake API server whose responses a test defines, and the agent's program as its client.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use jobset_harness::wait::{self, Check};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Time limit of a test for one wait, on a machine that runs all tests at once.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// The initial event of a watch on a JobSet.
pub(crate) const STATE: &str = r#"{"type": "ADDED", "object": {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
    "metadata": {"name": "a", "uid": "u", "resourceVersion": "5"},
    "spec": {"failurePolicy": {"restartStrategy": "InPlaceRestart"}}}}"#;
/// The bookmark that ends the initial events.
pub(crate) const END: &str = r#"{"type": "BOOKMARK", "object": {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
    "metadata": {"resourceVersion": "6", "annotations": {"k8s.io/initial-events-end": "true"}}}}"#;

/// A response, and whether the connection then stays open.
pub(crate) struct FakeResponse {
    text: String,
    stays_open: bool,
}

impl FakeResponse {
    pub(crate) fn error(code: u16, reason: &str) -> Self {
        let status = format!(r#"{{"kind": "Status", "status": "Failure", "code": {code}, "reason": "{reason}"}}"#);
        Self { text: head(&format!("{code} {reason}")) + &status, stays_open: false }
    }

    /// A success with these lines. The stream of a watch may stay open.
    pub(crate) fn lines(lines: &[&str], stays_open: bool) -> Self {
        let lines: Vec<String> = lines.iter().map(|line| line.replace('\n', " ")).collect();
        Self { text: head("200 OK") + &lines.join("\n") + "\n", stays_open }
    }
}

fn head(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
}

/// A request with the body of a report, and when it arrived.
pub(crate) type RecordedRequest = (String, Instant);

pub(crate) struct FakeApiServer {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    pub(crate) folder: TempDir,
}

impl FakeApiServer {
    /// Starts a server with these responses. `respond` gets the request, with the body of a report.
    pub(crate) async fn start(respond: impl Fn(&str) -> FakeResponse + Send + Sync + 'static) -> Result<Self> {
        Self::start_with(None, respond).await
    }

    /// The same, over TLS if there is a configuration for it.
    pub(crate) async fn start_with(
        tls: Option<ServerConfig>,
        respond: impl Fn(&str) -> FakeResponse + Send + Sync + 'static,
    ) -> Result<Self> {
        let tls = tls.map(|it| TlsAcceptor::from(Arc::new(it)));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let fake = Self { address: listener.local_addr()?, requests: Arc::default(), folder: tempfile::tempdir()? };
        let (requests, respond) = (Arc::clone(&fake.requests), Arc::new(respond));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (requests, respond, tls) = (Arc::clone(&requests), Arc::clone(&respond), tls.clone());
                tokio::spawn(async move {
                    let Some(tls) = tls else { return serve(stream, &requests, &*respond).await };
                    // A client that does not trust the server ends the handshake.
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, &requests, &*respond).await;
                    }
                });
            }
        });
        Ok(fake)
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes a file into the folder of the test.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(std::fs::write(self.folder.path().join(name), text)?)
    }

    /// Starts the agent with a kubeconfig for this server and this user. The agent is a supervisor, which needs no port.
    pub(crate) fn agent(&self, user: &str) -> Result<Child> {
        self.agent_of(user, "true")
    }

    /// The same, of this worker.
    pub(crate) fn agent_of(&self, user: &str, worker: &str) -> Result<Child> {
        let stderr = std::fs::File::create(self.folder.path().join("stderr"))?;
        let mut agent = self.command(user, &[worker])?;
        agent.stdin(Stdio::null()).stderr(stderr).kill_on_drop(true).spawn().context("cannot start the agent")
    }

    /// The agent as the supervisor of this worker.
    pub(crate) fn command(&self, user: &str, worker: &[&str]) -> Result<Command> {
        let address = self.address;
        self.write(
            "kubeconfig",
            &format!(
                "{{apiVersion: v1, kind: Config, current-context: fake,
                contexts: [{{name: fake, context: {{cluster: fake, user: fake}}}}],
                clusters: [{{name: fake, cluster: {{server: 'http://{address}'}}}}], users: [{{name: fake, user: {user}}}]}}"
            ),
        )?;
        let mut agent = Command::new(env!("CARGO_BIN_EXE_jobset-agent"));
        agent.args(["supervise", "--"]).args(worker);
        self.set_environment(&mut agent);
        Ok(agent)
    }

    /// Gives the agent its own environment alone.
    pub(crate) fn set_environment(&self, agent: &mut Command) {
        agent
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .envs([("NAMESPACE", "default"), ("POD_NAME", "a-0"), ("JOBSET_NAME", "a")])
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"));
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }

    /// Waits until the agent has sent a report, for at most this long.
    pub(crate) async fn wait_for_report(&self, limit: Duration) -> Result<()> {
        wait::until_met(limit, "a report", || async {
            let reported = self.requests().iter().any(|(head, _)| head.starts_with("PATCH"));
            Ok(if reported { Check::Met(()) } else { Check::Unmet(self.log()) })
        })
        .await
    }

    /// Waits until the agent has logged this text.
    pub(crate) async fn wait_for_log(&self, expected: &str) -> Result<()> {
        wait::until_met(LIMIT, format!("{expected:?} in the log of the agent"), || async {
            let log = self.log();
            Ok(if log.contains(expected) { Check::Met(()) } else { Check::Unmet(log) })
        })
        .await
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    requests: &Mutex<Vec<RecordedRequest>>,
    respond: &(impl Fn(&str) -> FakeResponse + Sync),
) {
    let mut request = Vec::new();
    // The body of a report ends with these braces. An unread body would reset the connection.
    let is_whole = |request: &[u8]| {
        let end: &[u8] = if request.starts_with(b"PATCH") { b"}}}" } else { b"\r\n\r\n" };
        request.ends_with(end)
    };
    while !is_whole(&request) {
        if !matches!(stream.read_buf(&mut request).await, Ok(1..)) {
            return;
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let FakeResponse { text, stays_open } = respond(&request);
    requests.lock().unwrap_or_else(PoisonError::into_inner).push((request, Instant::now()));
    // The agent may have ended.
    let _ = stream.write_all(text.as_bytes()).await;
    if stays_open {
        std::future::pending::<()>().await;
    }
}
