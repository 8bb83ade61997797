//! The program.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};
use jobset_harness::wait::{self, Check};
use jobset_stream::tls::testing::{ExtendedKeyUsagePurpose, Issued, Pki};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::cluster::{LIMIT, shared};

const PROGRAM: &str = env!("CARGO_BIN_EXE_jobset-relay");
pub(crate) const RELAY: &str = "jobset-relay.ns.svc";
pub(crate) const CONTROLLER: &str = "jobset-controller.ns.svc";

pub(crate) struct TestRelay {
    pub(crate) pki: Pki,
    pub(crate) issued: Issued,
    pub(crate) agents: SocketAddr,
    pub(crate) controllers: SocketAddr,
    health: SocketAddr,
    process: Child,
}

/// The command, on these ports.
pub(crate) fn command(kubeconfig: &Path, certificates: &Path, ports: [u16; 2]) -> Command {
    let mut command = Command::new(std::env::var("RELAY_PROGRAM").unwrap_or_else(|_| PROGRAM.to_owned()));
    command
        .args(["--namespace=ns", "--health-listen=127.0.0.1:0", "--log-format=json"])
        .args([
            format!("--agents-listen=127.0.0.1:{}", ports[0]),
            format!("--controller-listen=127.0.0.1:{}", ports[1]),
        ])
        .arg("--cert-dir")
        .arg(certificates)
        .env("KUBECONFIG", kubeconfig)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

impl TestRelay {
    pub(crate) async fn start(arguments: &[&str]) -> Result<Self> {
        Self::start_as(shared().await?.kubeconfig(), arguments).await
    }

    /// As the user of this kubeconfig.
    pub(crate) async fn start_as(kubeconfig: &Path, arguments: &[&str]) -> Result<Self> {
        let pki = Pki::new();
        let issued = pki.issue(RELAY, ExtendedKeyUsagePurpose::ServerAuth);
        let mut command = command(kubeconfig, issued.folder.path(), [0, 0]);
        let (process, [agents, controllers, health]) = run(command.args(arguments)).await?;
        let relay = Self { pki, issued, agents, controllers, health, process };
        relay.wait_until_ready().await?;
        Ok(relay)
    }

    /// Starts it again on the same ports.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        let ports = [self.agents.port(), self.controllers.port()];
        let mut command = command(shared().await?.kubeconfig(), self.issued.folder.path(), ports);
        let (process, [_, _, health]) = run(&mut command).await?;
        (self.process, self.health) = (process, health);
        self.wait_until_ready().await
    }

    async fn wait_until_ready(&self) -> Result<()> {
        wait::until_met(LIMIT, "readiness of the relay", || async {
            let answer = self.get("/readyz").await?;
            Ok(if answer.starts_with("HTTP/1.1 200") { Check::Met(()) } else { Check::Unmet(answer) })
        })
        .await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.health).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: relay\r\n\r\n").as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }

    pub(crate) async fn metric(&self, series: &str) -> Result<u64> {
        let text = self.get("/metrics").await?;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(value.with_context(|| format!("no {series}"))?.parse()?)
    }

    pub(crate) async fn wait_for_metric(&self, series: &str, value: u64) -> Result<()> {
        wait::until_met(LIMIT, format!("{series} {value}"), || async {
            let observed = self.metric(series).await?;
            Ok(if observed == value { Check::Met(()) } else { Check::Unmet(observed.to_string()) })
        })
        .await
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.process.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).context("it has ended")?;
        Ok(kill_process(pid, signal)?)
    }

    pub(crate) async fn ended(&mut self) -> Result<ExitStatus> {
        Ok(timeout(LIMIT, self.process.wait()).await??)
    }

    /// Resident memory in bytes.
    pub(crate) async fn memory(&self) -> Result<u64> {
        self.metric("process_resident_memory_bytes").await
    }
}

/// Runs the program until its log has told its addresses.
async fn run(command: &mut Command) -> Result<(Child, [SocketAddr; 3])> {
    let mut process = command.spawn()?;
    let mut log = BufReader::new(process.stderr.take().context("no log")?).lines();
    let (mut ports, mut health) = (None, None);
    let read = async {
        while let Some(line) = log.next_line().await? {
            let Ok(entry) = serde_json::from_str::<Value>(&line) else { bail!("the relay says: {line}") };
            let address = |name: &str| entry["fields"][name].as_str().and_then(|it| it.parse::<SocketAddr>().ok());
            health = health.or(address("address"));
            ports = ports.or(address("agents").zip(address("controllers")));
            if let (Some((agents, controllers)), Some(health)) = (ports, health) {
                return Ok([agents, controllers, health]);
            }
        }
        bail!("the relay has ended")
    };
    let addresses = timeout(LIMIT, read).await??;
    tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
    Ok((process, addresses))
}
