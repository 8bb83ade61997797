//! The environment variables of the agent.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jobset_protocol::agent::{
    BARRIER_PATH, BARRIER_PORT, DEFAULT_BARRIER_PATH, DEFAULT_BARRIER_PORT, DEFAULT_EXIT_CODE,
    DEFAULT_STOP_GRACE_SECONDS, EPOCH_FILE, EXIT_CODE, FATAL_EXIT_CODES, GO_BARRIER_PATH, GO_BARRIER_PATH_VARIABLE,
    GO_BARRIER_PORT, GO_DEFAULT_BARRIER_PORT, GO_DEFAULT_EXIT_CODE, GO_EXIT_CODE, GO_WORKER_COMMAND, JOBSET_NAME,
    JOBSET_UID, LOG, NAMESPACE, POD_NAME, PRE_RESTART_FILE, PRE_RESTART_SECONDS, PRE_RESTART_URL, PROGRESS_FILE,
    PROGRESS_PATTERN, RELAY, RELAY_FOLDER, RELAY_FOLDER_VARIABLE, STALL_AFTER, STALL_COMMAND, STALL_FIRST,
    STOP_GRACE_SECONDS, exit_codes, stall_time,
};
use jobset_protocol::step_pattern::StepPattern;
use tracing::Level;
use tracing_subscriber::filter::Targets;

use super::values::{barrier_path, is_object_name, local_url, port, relay, restart_exit_code, seconds, stall_after};
use super::{ArgsError, Config, Names, ProgressConfig, Role};
use crate::progress::{StallAfter, StallLimits};
use crate::save::{SaveHook, SaveHookKind};

const SHELL: &str = "SHELL";
const PATH_VARIABLE: &str = "PATH";

/// The values of variables that are not set.
struct Defaults {
    ports: &'static [u16],
    paths: &'static [&'static str],
    exit_code: u8,
}

const OWN: Defaults =
    Defaults { ports: &[DEFAULT_BARRIER_PORT], paths: &[DEFAULT_BARRIER_PATH], exit_code: DEFAULT_EXIT_CODE };
/// Defaults of an agent that may replace the agent of the Go JobSet, whose manifests do not set `NAMESPACE`. The manifest may
/// probe either agent, so this one listens on the ports and paths of both. The exit code may be any: the last restart rule that
/// the controller gives an agent restarts the Pod for every code but 0.
const EITHER: Defaults = Defaults {
    ports: &[GO_DEFAULT_BARRIER_PORT, DEFAULT_BARRIER_PORT],
    paths: &[GO_BARRIER_PATH, DEFAULT_BARRIER_PATH],
    exit_code: GO_DEFAULT_EXIT_CODE,
};

/// The environment. An empty variable counts as absent, because a `fieldRef` to a missing annotation gives an empty value.
struct Env<F>(F);

impl<F: Fn(&str) -> Option<OsString>> Env<F> {
    fn raw(&self, variable: &str) -> Option<OsString> {
        (self.0)(variable).filter(|value| !value.is_empty())
    }

    fn text(&self, variable: &str) -> Option<String> {
        self.raw(variable).map(|value| value.to_string_lossy().into_owned())
    }

    /// The value of the first of these variables that is set. `required` describes the values allowed, for the error.
    fn first<T>(
        &self,
        names: &[&'static str],
        read: impl Fn(&str) -> Option<T>,
        required: &'static str,
    ) -> Result<Option<T>, ArgsError> {
        let Some((variable, value)) = names.iter().find_map(|name| Some((*name, self.text(name)?))) else {
            return Ok(None);
        };
        read(&value).map(Some).ok_or(ArgsError::Invalid { variable, value, required })
    }

    /// The shell that runs the worker's command line: `SHELL`, else bash in `PATH`, as for the Go JobSet's agent; else `/bin/sh`.
    fn shell(&self, is_file: impl Fn(&Path) -> bool) -> OsString {
        let bash = || {
            let path = self.raw(PATH_VARIABLE)?;
            std::env::split_paths(&path).map(|folder| folder.join("bash")).find(|file| is_file(file))
        };
        self.raw(SHELL).or_else(|| bash().map(OsString::from)).unwrap_or_else(|| "/bin/sh".into())
    }

    fn seconds(&self, variable: &'static str, default: u64) -> Result<Duration, ArgsError> {
        let given = self.first(&[variable], seconds, "a number of seconds from 0 to 86400, such as 2 or 0.5")?;
        Ok(given.unwrap_or(Duration::from_secs(default)))
    }

    fn save_hook(&self) -> Result<Option<SaveHook>, ArgsError> {
        let url = self.first(&[PRE_RESTART_URL], local_url, "a URL such as http://localhost:9000/save")?;
        let kind = match (url, self.raw(PRE_RESTART_FILE)) {
            (Some(_), Some(_)) => return Err(ArgsError::Both(PRE_RESTART_URL, PRE_RESTART_FILE)),
            (Some(uri), None) => SaveHookKind::Http(uri),
            (None, Some(file)) => SaveHookKind::File(PathBuf::from(file)),
            (None, None) => return Ok(None),
        };
        Ok(Some(SaveHook { kind, limit: self.seconds(PRE_RESTART_SECONDS, 10)? }))
    }
}

impl Config {
    /// Reads the environment. `command` is the command line of the worker, for an agent that supervises it.
    pub fn parse(
        command: Option<Vec<OsString>>,
        env: impl Fn(&str) -> Option<OsString>,
        namespace_of_token: impl FnOnce() -> Option<String>,
        is_file: impl Fn(&Path) -> bool,
    ) -> Result<Self, ArgsError> {
        let env = Env(env);
        let name = |variable, value: Option<String>, source_field| {
            let value = value.ok_or(ArgsError::Missing { variable, source_field })?;
            if is_object_name(&value) {
                return Ok(value);
            }
            Err(ArgsError::Invalid { variable, value, required: "the name of a Kubernetes object" })
        };
        let namespace = env.text(NAMESPACE);
        let names = [GO_EXIT_CODE, GO_BARRIER_PORT, GO_BARRIER_PATH_VARIABLE, GO_WORKER_COMMAND];
        let may_be_of_go = namespace.is_none() || names.iter().any(|name| env.raw(name).is_some());
        let defaults = if may_be_of_go { EITHER } else { OWN };

        let namespace = namespace.or_else(namespace_of_token);
        let namespace = name(NAMESPACE, namespace, "fieldRef metadata.namespace")?;
        let pod = name(POD_NAME, env.text(POD_NAME), "fieldRef metadata.name")?;
        let jobset = "fieldRef metadata.annotations['jobset.sigs.k8s.io/jobset-name']";
        let jobset = name(JOBSET_NAME, env.text(JOBSET_NAME), jobset)?;
        let names = Names { namespace, pod, jobset };

        let by_shell = |line| vec![env.shell(is_file), "-c".into(), line];
        let role = match command.or_else(|| env.raw(GO_WORKER_COMMAND).map(by_shell)) {
            Some(command) => {
                let fatal =
                    env.first(&[FATAL_EXIT_CODES], exit_codes, "exit codes from 1 to 255, such as 2,3,64-78")?;
                let grace = env.seconds(STOP_GRACE_SECONDS, DEFAULT_STOP_GRACE_SECONDS.into())?;
                Role::Supervisor { command, fatal: fatal.unwrap_or_default(), grace }
            }
            None => Role::Sidecar {
                restart_exit_code: env
                    .first(&[EXIT_CODE, GO_EXIT_CODE], restart_exit_code, "a number from 1 to 255")?
                    .unwrap_or(defaults.exit_code),
                epoch_file: env.raw(EPOCH_FILE).map(PathBuf::from),
                save: env.save_hook()?,
            },
        };
        // A supervisor shares the ports of its worker, which may need any port, so a supervisor has no default port.
        let ports = if role.supervises() { &[] } else { defaults.ports };
        let port = env.first(&[BARRIER_PORT, GO_BARRIER_PORT], port, "a port, a number from 1 to 65535")?;
        let barrier_ports = port.map_or_else(|| ports.to_vec(), |port| vec![port]);
        let paths = defaults.paths.iter().map(|path| (*path).to_owned());
        let path = [BARRIER_PATH, GO_BARRIER_PATH_VARIABLE];
        let path = env.first(&path, barrier_path, "a path such as /barrier-is-lifted")?;
        let barrier_paths = path.map_or_else(|| paths.collect(), |path| vec![path]);
        let stall_after =
            env.first(&[STALL_AFTER], stall_after, "auto, or a time from 5s to 720h such as 90s or 20m")?;
        let first = env.first(&[STALL_FIRST], stall_time, "a time from 5s to 720h such as 90s or 20m")?;
        // A worker can do without it: a malformed one does not keep it from running.
        let text = env.text(PROGRESS_PATTERN).filter(|_| role.supervises());
        let pattern = text.as_deref().and_then(StepPattern::parse);
        let progress = ProgressConfig {
            file: env.raw(PROGRESS_FILE).map(PathBuf::from),
            malformed_pattern: text.filter(|_| pattern.is_none()),
            pattern,
            limits: StallLimits { after: stall_after.unwrap_or(StallAfter::Never), first },
            command: env.raw(STALL_COMMAND).filter(|_| role.supervises()),
        };
        let log = |value: &str| value.parse().ok();
        let log = env.first(&[LOG], log, "a level, or target=level,..., such as jobset_agent=debug")?;
        let log = log.unwrap_or_else(|| Targets::new().with_target("jobset_agent", Level::INFO));
        let folder = env.raw(RELAY_FOLDER_VARIABLE).unwrap_or_else(|| RELAY_FOLDER.into());
        let relay = env.first(
            &[RELAY],
            |value| relay(value, PathBuf::from(&folder)),
            "[NAME=]HOST:PORT, such as jobset-relay.jobset-system.svc:9443",
        )?;
        Ok(Self { names, jobset_uid: env.text(JOBSET_UID), barrier_ports, barrier_paths, relay, role, progress, log })
    }
}
