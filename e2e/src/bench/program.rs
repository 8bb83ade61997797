//! The program under measurement: a release build, as a process of its own.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};

use crate::cluster::ControlPlane;

/// A running program. It ends with this.
pub(super) struct Program {
    name: &'static str,
    child: Child,
    pid: u32,
}

impl Program {
    /// Starts the program against a control plane, whose API server it finds by this kubeconfig; its log is among the
    /// control plane's.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(
        name: &'static str,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        kubeconfig: &Path,
        plane: &ControlPlane,
    ) -> Result<Self> {
        let log = File::create(plane.dir().join(format!("logs/{name}.log"))).context("cannot create the log")?;
        let child = Command::new(program)
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let pid = child.id().with_context(|| format!("{name} has ended at once"))?;
        Ok(Self { name, child, pid })
    }

    /// The process id.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Awaits `work`, unless the program ends before.
    ///
    /// # Errors
    /// That of `work`, or that the program has ended.
    pub(super) async fn while_running<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let name = self.name;
        tokio::select! {
            outcome = work => outcome,
            status = self.child.wait() => match status {
                Ok(status) => bail!("{name} has ended ({status}); its log is among those of the control plane"),
                Err(error) => Err(error).with_context(|| format!("cannot wait for {name}")),
            },
        }
    }
}
