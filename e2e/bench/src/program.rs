//! The program under measurement, as a process of its own.

use std::ffi::OsStr;
use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use jobset_harness::cluster::Handle;

/// A running program. It ends when this is dropped.
pub(crate) struct Program {
    name: &'static str,
    child: Child,
    pid: u32,
}

impl Program {
    /// Starts the program with this kubeconfig of a cluster. Its log is in the cluster's folder.
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        environment: &[(&str, &str)],
        kubeconfig: &Path,
        cluster: &Handle,
    ) -> Result<Self> {
        let log = File::create(cluster.dir().join(format!("logs/{name}.log"))).context("cannot create the log")?;
        let child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().copied())
            .env("KUBECONFIG", kubeconfig)
            // The benchmark may run in a Pod of another cluster.
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let pid = child.id().with_context(|| format!("{name} has ended at its start"))?;
        Ok(Self { name, child, pid })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Awaits `work`, unless the program ends before.
    pub(crate) async fn while_running<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let name = self.name;
        tokio::select! {
            outcome = work => outcome,
            status = self.child.wait() => match status {
                Ok(status) => bail!("{name} has ended ({status}); its log is in the folder of the cluster"),
                Err(error) => Err(error).with_context(|| format!("cannot wait for {name}")),
            },
        }
    }
}

/// The kubeconfig of an administrator with another identity.
pub(crate) fn kubeconfig_of(cluster: &Handle, token: &str) -> Result<String> {
    let text = std::fs::read_to_string(cluster.kubeconfig()).context("cannot read the kubeconfig")?;
    let mut kubeconfig: Value = serde_yaml_ng::from_str(&text).context("the kubeconfig is not YAML")?;
    for user in kubeconfig["users"].as_array_mut().into_iter().flatten() {
        user["user"] = json!({ "token": token });
    }
    Ok(kubeconfig.to_string())
}

/// An address whose port was free a moment ago.
pub(crate) fn free(host: IpAddr) -> Result<SocketAddr> {
    let [address] = free_addresses(host)?;
    Ok(address)
}

/// Different addresses whose ports were free a moment ago.
pub(crate) fn free_addresses<const N: usize>(host: IpAddr) -> Result<[SocketAddr; N]> {
    let listen = || TcpListener::bind((host, 0)).context("no port is free");
    let listeners: Vec<TcpListener> = (0..N).map(|_| listen()).collect::<Result<_>>()?;
    let mut addresses = [SocketAddr::new(host, 0); N];
    for (address, listener) in addresses.iter_mut().zip(&listeners) {
        *address = listener.local_addr().context("a listener has no address")?;
    }
    Ok(addresses)
}
