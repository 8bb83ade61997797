//! The agent's command line and environment.
//!
//! Parsing is pure: it sees the environment through a function. A wrong value is reported in one line that names the
//! variable, what is wrong with it and what to set.

mod environment;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::num::{NonZeroU8, NonZeroU16};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tracing_subscriber::filter::Targets;

use crate::decide::Mode;
use crate::probe::BarrierPath;
use crate::save::Save;

/// Text of `--help`.
pub const HELP: &str = "\
jobset-agent: restarts its Pod in place with the other Pods of its JobSet.

It writes its Pod's epoch to the annotation jobset.sigs.k8s.io/epoch, and lets the worker run once all Pods of the
JobSet are in that epoch. When the epoch is over, the worker is restarted.

Usage:
  jobset-agent                            as a sidecar: an init container with restartPolicy Always, before the workers.
                                          Its startup probe holds them back; its exit code restarts the Pod
  jobset-agent supervise -- COMMAND...    as the entrypoint of the worker's container: starts the command, stops it and
                                          starts it again. Passes signals and standard streams through, ends what the
                                          command leaves behind, and exits as it does: with 0 when it has succeeded, or
                                          with a fatal code
  jobset-agent install DIR                copies this binary to DIR/jobset-agent, for images that lack it
  jobset-agent --help | --version

Environment, required:
  POD_NAME                        name of the Pod                 (fieldRef metadata.name)
  JOBSET_NAME                     name of the JobSet  (fieldRef metadata.annotations['jobset.sigs.k8s.io/jobset-name'])
  NAMESPACE                       namespace of the Pod            (fieldRef metadata.namespace); without it that of the
                                  Pod's token, and the defaults of the Go JobSet's agent (below)
Environment, optional:
  JOBSET_UID                      UID of the JobSet    (fieldRef metadata.annotations['jobset.sigs.k8s.io/jobset-uid'])
  BARRIER_PORT                    port of the probe       [default: 8080; of a supervisor: none, so no readiness probe]
  BARRIER_PATH                    path of the probe                                        [default: /barrier-is-lifted]
  KUBECONFIG                      cluster and credentials outside a Pod; in one, its ServiceAccount counts and not this
  JOBSET_AGENT_LOG                what to log: a level, or target=level,...                [default: jobset_agent=info]
Environment of a sidecar, optional:
  RESTART_POD_IN_PLACE_EXIT_CODE  exit code that restarts the Pod, 1 to 255                                [default: 81]
  EPOCH_FILE                      file that tells the worker its epoch by fileKeyRef, key JOBSET_EPOCH   [default: none]
  PRE_RESTART_URL                 told by POST that the worker may save its state, http on localhost     [default: none]
  PRE_RESTART_FILE                appears for the same reason, and is to be removed afterwards           [default: none]
  PRE_RESTART_SECONDS             how long the worker may take to save its state                           [default: 10]
Environment of a supervisor, optional:
  FATAL_EXIT_CODES                codes of the worker that end the container, such as 2,3,64-78          [default: none]
  STOP_GRACE_SECONDS              time from SIGTERM to SIGKILL when the worker is stopped                   [default: 2]
The worker of a supervisor finds its epoch in JOBSET_EPOCH.

The Go JobSet's names are understood, too: STARTUP_PROBE_PORT [8081], STARTUP_PROBE_PATH [/barrier-is-down],
IN_PLACE_RESTART_EXIT_CODE [1], and WORKER_COMMAND, a command line to supervise: of the shell that SHELL names, else
of bash in PATH, else of /bin/sh.
";

/// Which Pod and JobSet this agent serves, and how it is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Namespace of the Pod and of its JobSet.
    pub namespace: String,
    /// Name of the Pod whose epoch this agent writes.
    pub pod: String,
    /// Name of the JobSet that the Pod belongs to.
    pub jobset: String,
    /// UID of the JobSet; without it the first JobSet seen under the name counts.
    pub jobset_uid: Option<String>,
    /// TCP ports of the probe: none of a supervisor that nobody asks, two where nobody says who asks.
    pub barrier_ports: Vec<NonZeroU16>,
    /// Paths of the probe.
    pub barrier_paths: Vec<BarrierPath>,
    /// How the agent stands to its worker.
    pub role: Role,
    /// What to log.
    pub log: Targets,
}

/// How the agent stands to its worker.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// Beside it, in a container of its own.
    Sidecar {
        /// Exit code that the Pod's restart rules answer with a restart of all containers; 1 to 255.
        restart_exit_code: NonZeroU8,
        /// File that tells the worker its epoch.
        epoch_file: Option<PathBuf>,
        /// How the worker is told to save its state before a restart, if it is.
        save: Option<Save>,
    },
    /// Above it.
    Supervisor {
        /// The worker's program and arguments.
        command: Vec<OsString>,
        /// Exit codes of the worker that end the container.
        fatal: BTreeSet<u8>,
        /// Time from SIGTERM to SIGKILL.
        grace: Duration,
    },
}

impl Role {
    /// The mode of the state machine.
    pub fn mode(&self) -> Mode {
        match self {
            Self::Sidecar { save, .. } => Mode::Sidecar { saves: save.is_some() },
            Self::Supervisor { fatal, .. } => Mode::Supervisor { fatal: fatal.clone() },
        }
    }
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Print [`HELP`].
    Help,
    /// Print the version.
    Version,
    /// Copy the binary into this folder.
    Install(PathBuf),
    /// Run.
    Run(Box<Config>),
}

/// A command line or an environment that the agent cannot run with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArgsError {
    /// An argument that does not exist.
    #[error("unknown argument {0:?}; see jobset-agent --help")]
    Argument(String),
    /// There is nothing to supervise.
    #[error("supervise needs the worker's command, as in: jobset-agent supervise -- python train.py")]
    NoCommand,
    /// There is nowhere to install to, or there are several places.
    #[error("install needs one folder, as in: jobset-agent install /var/run/jobset-agent")]
    Folder,
    /// A required variable is absent or empty.
    #[error("environment variable {variable} is not set; set it on the agent's container from {source_field}")]
    Missing {
        /// Name of the variable.
        variable: &'static str,
        /// Where the Pod's manifest takes it from.
        source_field: &'static str,
    },
    /// A variable has a value that cannot be used.
    #[error("environment variable {variable} is {value:?}; it must be {required}")]
    Invalid {
        /// Name of the variable.
        variable: &'static str,
        /// The value found.
        value: String,
        /// The values allowed.
        required: &'static str,
    },
    /// Two variables say how the worker is told to save its state.
    #[error("environment variables {0} and {1} are both set; set one of them")]
    Both(&'static str, &'static str),
}

impl Command {
    /// Reads the arguments (without the program's name), the environment, and the namespace of the Pod's token.
    pub fn parse(
        args: impl IntoIterator<Item = OsString>,
        env: impl Fn(&str) -> Option<OsString>,
        namespace_of_token: impl FnOnce() -> Option<String>,
        is_file: impl Fn(&Path) -> bool,
    ) -> Result<Self, ArgsError> {
        let mut args = args.into_iter();
        let Some(first) = args.next() else {
            return Config::parse(None, env, namespace_of_token, is_file).map(Box::new).map(Self::Run);
        };
        match first.to_str() {
            Some("--help" | "-h") => Ok(Self::Help),
            Some("--version" | "-V") => Ok(Self::Version),
            Some("supervise") => {
                let mut command: Vec<OsString> = args.collect();
                if command.first().is_some_and(|word| word == "--") {
                    command.remove(0);
                }
                if command.is_empty() {
                    return Err(ArgsError::NoCommand);
                }
                Config::parse(Some(command), env, namespace_of_token, is_file).map(Box::new).map(Self::Run)
            }
            Some("install") => match (args.next(), args.next()) {
                (Some(folder), None) if !folder.is_empty() => Ok(Self::Install(folder.into())),
                _ => Err(ArgsError::Folder),
            },
            _ => Err(ArgsError::Argument(first.to_string_lossy().into_owned())),
        }
    }
}
