//! The controller's own program, as a process, and as the ServiceAccount that it has where it is installed.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result};
use clap::Parser as _;
use jobset_controller::args::Args;
use jobset_controller::run::work;
use jobset_controller::shell::Health;
use jobset_harness::wait::{self, Check};
use jobset_harness::{ControlPlane, install, paths};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustix::process::{Pid, Signal, kill_process};
use serde_yaml_ng::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fixture::LIMIT;

/// The namespace that the controller is installed in.
pub(crate) const NAMESPACE: &str = "jobset-system";

/// Creates the controller's ServiceAccount, its rights and the policy that confines it, and a kubeconfig for it.
pub(crate) async fn grant(plane: &ControlPlane) -> Result<()> {
    apply(plane, &["namespace.yaml", "controller-rbac.yaml", "controller-policy.yaml"]).await?;
    let token = install::kubectl(plane, &["create", "token", "jobset-controller", "-n", NAMESPACE]).await?;
    let mut config: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(plane.kubeconfig())?)?;
    let user = config["users"][0].get_mut("user").context("a kubeconfig without a user")?;
    *user = Value::Mapping([("token".into(), String::from_utf8(token.stdout)?.trim().into())].into_iter().collect());
    Ok(std::fs::write(kubeconfig(plane), serde_yaml_ng::to_string(&config)?)?)
}

/// Creates the agents' role, and the policy that confines them.
pub(crate) async fn permit_agents(plane: &ControlPlane) -> Result<()> {
    apply(plane, &["agent.yaml", "agent-policy.yaml"]).await
}

/// Applies these files of `deploy/kustomize/common`.
pub(crate) async fn apply(plane: &ControlPlane, manifests: &[&str]) -> Result<()> {
    for manifest in manifests {
        let manifest = paths::workspace().join("deploy/kustomize/common").join(manifest);
        install::kubectl(plane, &["apply", "--server-side", "-f", &manifest.to_string_lossy()]).await?;
    }
    Ok(())
}

pub(crate) async fn client_config(plane: &ControlPlane) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig(plane))?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

fn kubeconfig(plane: &ControlPlane) -> PathBuf {
    plane.dir().join("jobset-controller.kubeconfig")
}

/// Runs a controller that ends with the control plane.
pub(crate) async fn start_beside(plane: &ControlPlane, name: &str, arguments: &[&str]) -> Result<()> {
    let program = Path::new(env!("CARGO_BIN_EXE_jobset-controller"));
    let config = kubeconfig(plane);
    let env = [("KUBECONFIG", &*config.to_string_lossy()), ("POD_NAMESPACE", NAMESPACE)];
    plane.start_program(name, program, &[&LISTEN[..], &[INSECURE], arguments].concat(), &env).await
}

/// Runs a controller in this process, which calls `health` before each plan. It ends with the token.
pub(crate) async fn run_here(
    plane: &ControlPlane,
    health: &Health,
    arguments: &[&str],
) -> Result<(CancellationToken, JoinHandle<Result<()>>)> {
    let of_election = format!("--leader-elect-resource-namespace={NAMESPACE}");
    let all = [&["jobset-controller"][..], &LISTEN, &[INSECURE, &of_election], arguments].concat();
    let (config, stop) = (client_config(plane).await?, CancellationToken::new());
    let ended = tokio::spawn(work(Args::try_parse_from(all)?, config, health.clone(), stop.clone()));
    Ok((stop, ended))
}

/// Any free ports.
const LISTEN: [&str; 4] = ["--health-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];
const INSECURE: &str = "--metrics-secure=false";

/// A running controller. It ends with this value.
pub(crate) struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    pub(crate) fn start(plane: &ControlPlane, name: &str, arguments: &[&str]) -> Result<Self> {
        let log = plane.dir().join(format!("logs/{name}.log"));
        let secure = arguments.iter().any(|it| it.starts_with("--metrics-secure"));
        let child = Command::new(env!("CARGO_BIN_EXE_jobset-controller"))
            .args(LISTEN)
            .args((!secure).then_some(INSECURE))
            .args(arguments)
            .env("KUBECONFIG", kubeconfig(plane))
            .env("POD_NAMESPACE", NAMESPACE)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the controller")?;
        Ok(Self { child, log })
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).context("it has ended")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus> {
        let ended = tokio::time::timeout(LIMIT, self.child.wait()).await;
        Ok(ended.context("the controller has not ended in time")??)
    }

    pub(crate) fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.log)?)
    }

    /// The first line of the log that contains the text, once there is one.
    pub(crate) async fn logged(&self, text: &str) -> Result<String> {
        wait::until_met(LIMIT, format!("{text:?} in {}", self.log.display()), || async {
            let log = self.log()?;
            let line = log.lines().find(|line| line.contains(text));
            Ok(line.map_or_else(|| Check::Unmet(log.clone()), |line| Check::Met(line.to_owned())))
        })
        .await
    }

    pub(crate) async fn address(&self, what: &str) -> Result<String> {
        let line = self.logged(&format!("serving {what}")).await?;
        let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
        Ok(address.context("no address in the log")?.to_owned())
    }

    /// What it serves on the port of `what`.
    pub(crate) async fn get(&self, what: &str, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.address(what).await?).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// The value of a series, by its name and labels as they are written; `None` where there is no such series.
    pub(crate) async fn metric(&self, series: &str) -> Result<Option<f64>> {
        let metrics = self.get("metrics", "/metrics").await?;
        let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(value.map(str::parse).transpose()?)
    }

    /// Waits until a series has this value.
    pub(crate) async fn has_metric(&self, series: &str, wanted: Option<f64>) -> Result<()> {
        wait::until_met(LIMIT, format!("{series} to be {wanted:?}"), || async {
            let value = self.metric(series).await?;
            Ok(if value == wanted { Check::Met(()) } else { Check::Unmet(format!("{value:?}")) })
        })
        .await
    }
}
