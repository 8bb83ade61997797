//! The controller under measurement: the release build, as a process of its own.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};

use crate::cluster::ControlPlane;

/// A running controller. It ends with this.
pub(super) struct Controller {
    child: Child,
    pid: u32,
}

impl Controller {
    /// Starts the program against a control plane; its log is among the control plane's.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(program: &Path, plane: &ControlPlane) -> Result<Self> {
        let log = File::create(plane.dir().join("logs/jobset-controller.log")).context("cannot create the log")?;
        let child = Command::new(program)
            .args(["--health-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"])
            .env("KUBECONFIG", plane.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let pid = child.id().context("the controller has ended at once")?;
        Ok(Self { child, pid })
    }

    /// The process id.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Awaits `work`, unless the controller ends before.
    ///
    /// # Errors
    /// That of `work`, or that the controller has ended.
    pub(super) async fn while_running<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            outcome = work => outcome,
            status = self.child.wait() => match status {
                Ok(status) => bail!("the controller has ended ({status}); its log is among those of the control plane"),
                Err(error) => Err(error).context("cannot wait for the controller"),
            },
        }
    }
}
