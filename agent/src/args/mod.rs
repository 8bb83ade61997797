//! The agent's command line and environment.
//!
//! Parsing is pure: a function gives it the environment. An invalid value is reported in one line that names the variable, its
//! value and the values allowed.

mod environment;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jobset_protocol::step_pattern::StepPattern;
use rustls_pki_types::ServerName;
use thiserror::Error;
use tracing_subscriber::filter::Targets;

use crate::decide::Mode;
use crate::progress::StallLimits;
use crate::save::SaveHook;

pub const HELP: &str = "\
jobset-agent: restarts the worker of its Pod in place, together with all workers of its JobSet.

The agent writes the epoch of its Pod to the annotation jobset.sigs.k8s.io/epoch. It starts the worker once all Pods of
the JobSet are in that epoch. It restarts the worker when the epoch ends.

Usage:
  jobset-agent                            runs as a sidecar: an init container with restartPolicy Always. Its startup
                                          probe holds the workers back. Its exit code restarts the Pod
  jobset-agent supervise -- COMMAND...    runs as the entrypoint of the worker's container. Starts the command, stops it
                                          and starts it again. Forwards signals and standard streams. Ends all processes
                                          that the command leaves. Exits with the exit code of the command when that is
                                          0 or fatal
  jobset-agent install DIR                copies this binary to DIR/jobset-agent, for images that do not contain it
  jobset-agent --help | --version

Environment, required:
  POD_NAME                        name of the Pod                 (fieldRef metadata.name)
  JOBSET_NAME                     name of the JobSet  (fieldRef metadata.annotations['jobset.sigs.k8s.io/jobset-name'])
  NAMESPACE                       namespace of the Pod            (fieldRef metadata.namespace). If it is not set: the
                                  namespace of the Pod's token, and also the defaults of the Go JobSet's agent (below)
Environment, optional:
  JOBSET_UID                      UID of the JobSet    (fieldRef metadata.annotations['jobset.sigs.k8s.io/jobset-uid'])
  BARRIER_PORT                    port of the probe       [default: 8080; of a supervisor: none, so no readiness probe]
  BARRIER_PATH                    path of the probe                                        [default: /barrier-is-lifted]
  KUBECONFIG                      cluster and credentials outside a Pod; ignored in a Pod with a ServiceAccount token
  JOBSET_RELAY                    relays of the agent stream, [NAME=]HOST:PORT: reports and epochs go over a connection to
                                  one of them. NAME is that of its certificate, if it is not HOST. Needs JOBSET_UID
                                                                                                           [default: none]
  JOBSET_RELAY_FOLDER             folder with token and ca.crt for them   [default: /var/run/secrets/jobset-relay]
  JOBSET_PROGRESS_FILE            file to which the worker writes its step: 1200, or step=1200 phase=eval limit=600
                                                                                                           [default: none]
  JOBSET_STALL_AFTER              how long the worker may tell of no progress, as 90s or 20m, before the agent reports
                                  that: auto, or a time                                                    [default: never]
  JOBSET_STALL_FIRST              the same before its first step      [default: 30m; JOBSET_STALL_AFTER, if that is longer]
  JOBSET_AGENT_LOG                what to log: a level, or target=level,...                [default: jobset_agent=info]
Environment of a sidecar, optional:
  RESTART_POD_IN_PLACE_EXIT_CODE  exit code that restarts the Pod, 1 to 255                                [default: 81]
  EPOCH_FILE                      file with the epoch for a fileKeyRef of the worker, key JOBSET_EPOCH   [default: none]
  PRE_RESTART_URL                 gets a POST before a restart; the worker saves its state and answers.
                                  http on localhost                                                      [default: none]
  PRE_RESTART_FILE                created before a restart; the worker saves its state and removes it    [default: none]
  PRE_RESTART_SECONDS             time limit for the worker to save its state                              [default: 10]
Environment of a supervisor, optional:
  FATAL_EXIT_CODES                exit codes of the worker that end the container, such as 2,3,64-78     [default: none]
  STOP_GRACE_SECONDS              time from SIGTERM to SIGKILL when the worker is stopped                   [default: 2]
  JOBSET_PROGRESS_PATTERN         regular expression over the lines of the worker's output, with one group: the step
                                                                                                         [default: none]
  JOBSET_STALL_COMMAND            shell command that runs when the worker makes no progress, at most 10 s, such as
                                  py-spy dump --pid $WORKER_PID. The report has the end of its output    [default: none]
The worker of a supervisor finds its epoch in JOBSET_EPOCH.

The agent also accepts the variables of the Go JobSet's agent: STARTUP_PROBE_PORT [8081], STARTUP_PROBE_PATH
[/barrier-is-down], IN_PLACE_RESTART_EXIT_CODE [1], and WORKER_COMMAND, a command line to supervise. The shell that
SHELL names runs that command line, else bash in PATH, else /bin/sh.
";

/// The Pod whose epoch an agent writes, the JobSet of the Pod, and the namespace of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub namespace: String,
    pub pod: String,
    pub jobset: String,
}

/// The Pod and the JobSet of this agent, and its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub names: Names,
    /// UID of the JobSet; `None` takes the UID of the first JobSet observed under the name.
    pub jobset_uid: Option<String>,
    /// TCP ports of the probe. A supervisor without a port has none. A sidecar without a port that may replace the Go JobSet's agent
    /// has two.
    pub barrier_ports: Vec<u16>,
    pub barrier_paths: Vec<String>,
    /// The relays of the agent stream; `None` if the agent relies on the API server alone.
    pub relay: Option<Relay>,
    pub role: Role,
    pub progress: ProgressConfig,
    pub log: Targets,
}

/// How the worker tells of its progress, and when it makes none.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgressConfig {
    pub file: Option<PathBuf>,
    /// What a supervisor looks for in the output of its worker.
    pub pattern: Option<StepPattern>,
    /// The text that is no such pattern, and is ignored.
    pub malformed_pattern: Option<String>,
    pub limits: StallLimits,
    /// Shell command that a supervisor runs when a stall begins.
    pub command: Option<OsString>,
}

impl ProgressConfig {
    /// Whether the worker can tell of any progress.
    pub fn is_followed(&self) -> bool {
        self.file.is_some() || self.pattern.is_some()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// Host and port of their Service.
    pub address: String,
    /// The name of their certificates.
    pub name: ServerName<'static>,
    /// The DNS name in the certificate of the leading controller.
    pub leader: String,
    /// Folder with the files [`RELAY_TOKEN`](jobset_protocol::agent::RELAY_TOKEN) and
    /// [`RELAY_CA`](jobset_protocol::agent::RELAY_CA).
    pub folder: PathBuf,
}

/// The relation of the agent to its worker.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// The agent runs beside the worker, in a container of its own.
    Sidecar {
        /// Exit code for which the Pod's restart rules restart all containers; 1 to 255.
        restart_exit_code: u8,
        epoch_file: Option<PathBuf>,
        /// The hook by which the worker saves its state before a restart.
        save: Option<SaveHook>,
    },
    /// The agent is the parent process of the worker.
    Supervisor {
        command: Vec<OsString>,
        /// Exit codes of the worker that end the container.
        fatal: BTreeSet<u8>,
        /// Time from SIGTERM to SIGKILL.
        grace: Duration,
    },
}

impl Role {
    /// Whether the agent starts its worker itself.
    pub fn supervises(&self) -> bool {
        matches!(self, Self::Supervisor { .. })
    }

    pub fn mode(&self) -> Mode {
        match self {
            Self::Sidecar { save, .. } => Mode::Sidecar { saves: save.is_some() },
            Self::Supervisor { fatal, .. } => Mode::Supervisor { fatal: fatal.clone() },
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Help,
    Version,
    /// Copy the binary into this folder.
    Install(PathBuf),
    Run(Box<Config>),
}

/// An invalid command line or environment.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArgsError {
    #[error("unknown argument {0:?}; see jobset-agent --help")]
    Argument(String),
    #[error("supervise needs the worker's command, as in: jobset-agent supervise -- python train.py")]
    NoCommand,
    #[error("install needs one folder, as in: jobset-agent install /var/run/jobset-agent")]
    Folder,
    #[error("environment variable {variable} is not set; set it on the agent's container from {source_field}")]
    Missing {
        variable: &'static str,
        /// Where the Pod's manifest takes it from.
        source_field: &'static str,
    },
    #[error("environment variable {variable} is {value:?}; it must be {required}")]
    Invalid { variable: &'static str, value: String, required: &'static str },
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
        let args: Vec<OsString> = args.into_iter().collect();
        let words: Vec<Option<&str>> = args.iter().map(|word| word.to_str()).collect();
        let command = match words.as_slice() {
            [] => None,
            [Some("--help" | "-h"), ..] => return Ok(Self::Help),
            [Some("--version" | "-V"), ..] => return Ok(Self::Version),
            [Some("install"), _] if !args[1].is_empty() => return Ok(Self::Install(PathBuf::from(&args[1]))),
            [Some("install"), ..] => return Err(ArgsError::Folder),
            [Some("supervise")] | [Some("supervise"), Some("--")] => return Err(ArgsError::NoCommand),
            [Some("supervise"), Some("--"), ..] => Some(args[2..].to_vec()),
            [Some("supervise"), ..] => Some(args[1..].to_vec()),
            [..] => return Err(ArgsError::Argument(args[0].to_string_lossy().into_owned())),
        };
        Config::parse(command, env, namespace_of_token, is_file).map(Box::new).map(Self::Run)
    }
}
