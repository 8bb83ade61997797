//! The agent's configuration, read from its environment.
//!
//! Parsing is pure: it sees the environment through a function. A wrong value is reported in one line that names the
//! variable, what is wrong with it and what to set.

use std::num::{NonZeroU8, NonZeroU16};
use std::str::FromStr;

use thiserror::Error;
use tracing_subscriber::filter::Targets;

/// Text of `--help`.
pub const HELP: &str = "\
jobset-agent: restarts its Pod in place with the other Pods of its JobSet.

Runs as a sidecar (an init container with restartPolicy Always) before the worker. It writes its Pod's epoch to the
annotation jobset.sigs.k8s.io/epoch, answers the startup probe once all Pods of the JobSet are in that epoch, and exits
with a special code when the epoch is over.

Usage: jobset-agent [--help | --version]

Environment, required:
  NAMESPACE                       namespace of the Pod            (fieldRef metadata.namespace)
  POD_NAME                        name of the Pod                 (fieldRef metadata.name)
  JOBSET_NAME                     name of the JobSet  (fieldRef metadata.annotations['jobset.sigs.k8s.io/jobset-name'])
Environment, optional:
  JOBSET_UID                      UID of the JobSet    (fieldRef metadata.annotations['jobset.sigs.k8s.io/jobset-uid'])
  RESTART_POD_IN_PLACE_EXIT_CODE  exit code that restarts the Pod, 1 to 255                                [default: 81]
  BARRIER_PORT                    port of the startup probe                                              [default: 8080]
  BARRIER_PATH                    path of the startup probe                                [default: /barrier-is-lifted]
  KUBECONFIG                      cluster and credentials, for use outside a Pod     [default: the Pod's ServiceAccount]
  JOBSET_AGENT_LOG                what to log: a level, or target=level,...                [default: jobset_agent=info]
";

const NAMESPACE: &str = "NAMESPACE";
const POD_NAME: &str = "POD_NAME";
const JOBSET_NAME: &str = "JOBSET_NAME";
const JOBSET_UID: &str = "JOBSET_UID";
const EXIT_CODE: &str = "RESTART_POD_IN_PLACE_EXIT_CODE";
const BARRIER_PORT: &str = "BARRIER_PORT";
const BARRIER_PATH: &str = "BARRIER_PATH";
const LOG: &str = "JOBSET_AGENT_LOG";

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
    /// Exit code that the Pod's restart rules answer with a restart of all containers; 1 to 255.
    pub restart_exit_code: NonZeroU8,
    /// TCP port of the startup probe.
    pub barrier_port: NonZeroU16,
    /// Path of the startup probe.
    pub barrier_path: BarrierPath,
    /// What to log.
    pub log: Targets,
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Print [`HELP`].
    Help,
    /// Print the version.
    Version,
    /// Run as a sidecar.
    Run(Config),
}

/// A command line or an environment that the agent cannot run with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArgsError {
    /// An argument that does not exist.
    #[error("unknown argument {0:?}; see jobset-agent --help")]
    Argument(String),
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
}

impl Command {
    /// Reads the arguments (without the program's name) and the environment.
    pub fn parse(
        args: impl IntoIterator<Item = String>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ArgsError> {
        let mut args = args.into_iter();
        match args.next().as_deref() {
            None => Config::parse(env).map(Self::Run),
            Some("--help" | "-h") => Ok(Self::Help),
            Some("--version" | "-V") => Ok(Self::Version),
            Some(other) => Err(ArgsError::Argument(other.to_owned())),
        }
    }
}

impl Config {
    /// Reads the environment. An empty variable counts as absent: that is what a `fieldRef` to a missing annotation is.
    pub fn parse(env: impl Fn(&str) -> Option<String>) -> Result<Self, ArgsError> {
        let env = |variable: &str| env(variable).filter(|value| !value.is_empty());
        let name = |variable, source_field| {
            let value = env(variable).ok_or(ArgsError::Missing { variable, source_field })?;
            if is_object_name(&value) {
                return Ok(value);
            }
            Err(ArgsError::Invalid { variable, value, required: "the name of a Kubernetes object" })
        };

        let namespace = name(NAMESPACE, "fieldRef metadata.namespace")?;
        let pod = name(POD_NAME, "fieldRef metadata.name")?;
        let jobset = name(JOBSET_NAME, "fieldRef metadata.annotations['jobset.sigs.k8s.io/jobset-name']")?;
        let restart_exit_code = or_default(&env, EXIT_CODE, "81", "a number from 1 to 255")?;
        let barrier_port = or_default(&env, BARRIER_PORT, "8080", "a port, a number from 1 to 65535")?;
        let barrier_path = or_default(&env, BARRIER_PATH, "/barrier-is-lifted", "a path such as /barrier-is-lifted")?;
        let log =
            or_default(&env, LOG, "jobset_agent=info", "a level, or target=level,..., such as jobset_agent=debug")?;

        Ok(Self {
            namespace,
            pod,
            jobset,
            jobset_uid: env(JOBSET_UID),
            restart_exit_code,
            barrier_port,
            barrier_path,
            log,
        })
    }
}

/// Whether the value can be the name of a namespace, Pod or JobSet, and so a part of a request's path.
fn is_object_name(value: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    value.len() <= 253 && value.bytes().all(inner) && !value.starts_with(['.', '-']) && !value.ends_with(['.', '-'])
}

/// Path of the startup probe: it begins with a slash, has no query, and is not the health endpoint's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarrierPath(String);

impl BarrierPath {
    /// The path as a request names it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BarrierPath {
    type Err = ();

    fn from_str(value: &str) -> Result<Self, ()> {
        let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
        let usable = value.starts_with('/') && value.bytes().all(plain) && value != crate::probe::HEALTH_PATH;
        if usable { Ok(Self(value.to_owned())) } else { Err(()) }
    }
}

fn or_default<T: FromStr>(
    env: &impl Fn(&str) -> Option<String>,
    variable: &'static str,
    default: &str,
    required: &'static str,
) -> Result<T, ArgsError> {
    let value = env(variable).unwrap_or_else(|| default.to_owned());
    value.parse().map_err(|_| ArgsError::Invalid { variable, value, required })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const REQUIRED: &[(&str, &str)] =
        &[("NAMESPACE", "ml"), ("POD_NAME", "train-workers-0-0-x7f2k"), ("JOBSET_NAME", "train")];

    fn parse(changes: &[(&str, &str)]) -> Result<Config, ArgsError> {
        let of = |table: &[(&str, &str)], variable: &str| {
            table.iter().find(|(name, _)| *name == variable).map(|(_, value)| (*value).to_owned())
        };
        Config::parse(|variable| of(changes, variable).or_else(|| of(REQUIRED, variable)))
    }

    #[test]
    fn seeds_three_variables_suffice_and_the_rest_has_the_seeds_defaults() {
        let config = parse(&[]).unwrap();
        assert_eq!((config.namespace.as_str(), config.pod.as_str()), ("ml", "train-workers-0-0-x7f2k"));
        assert_eq!((config.jobset.as_str(), config.jobset_uid.as_deref()), ("train", None));
        assert_eq!((config.restart_exit_code.get(), config.barrier_port.get()), (81, 8080));
        assert_eq!(config.barrier_path.as_str(), "/barrier-is-lifted");
    }

    #[test]
    fn optional_variables_are_taken() {
        let config = parse(&[
            ("RESTART_POD_IN_PLACE_EXIT_CODE", "7"),
            ("BARRIER_PORT", "8081"),
            ("BARRIER_PATH", "/barrier-is-down"),
            ("JOBSET_UID", "0b4c"),
        ])
        .unwrap();
        assert_eq!((config.restart_exit_code.get(), config.barrier_port.get()), (7, 8081));
        assert_eq!((config.barrier_path.as_str(), config.jobset_uid.as_deref()), ("/barrier-is-down", Some("0b4c")));
    }

    #[rstest]
    #[case("NAMESPACE")]
    #[case("POD_NAME")]
    #[case("JOBSET_NAME")]
    fn required_variable_that_is_absent_or_empty_is_named(#[case] variable: &'static str) {
        let text = parse(&[(variable, "")]).unwrap_err().to_string();
        assert!(text.starts_with(&format!("environment variable {variable} is not set; set it")), "{text}");
        assert_eq!(text.lines().count(), 1);
    }

    #[rstest]
    #[case("RESTART_POD_IN_PLACE_EXIT_CODE", "1", true)]
    #[case("RESTART_POD_IN_PLACE_EXIT_CODE", "255", true)]
    #[case("RESTART_POD_IN_PLACE_EXIT_CODE", "", true)]
    #[case("RESTART_POD_IN_PLACE_EXIT_CODE", "0", false)]
    #[case("RESTART_POD_IN_PLACE_EXIT_CODE", "256", false)]
    #[case("RESTART_POD_IN_PLACE_EXIT_CODE", "-1", false)]
    #[case("RESTART_POD_IN_PLACE_EXIT_CODE", "X", false)]
    #[case("RESTART_POD_IN_PLACE_EXIT_CODE", "81 ", false)]
    #[case("BARRIER_PORT", "0", false)]
    #[case("BARRIER_PORT", "65536", false)]
    #[case("BARRIER_PATH", "barrier", false)]
    #[case("BARRIER_PATH", "/a b", false)]
    #[case("BARRIER_PATH", "/a?b", false)]
    #[case("BARRIER_PATH", "/healthz", false)]
    #[case("JOBSET_AGENT_LOG", "debug", true)]
    #[case("JOBSET_AGENT_LOG", "jobset_agent=loud", false)]
    #[case("NAMESPACE", "ml/../kube-system", false)]
    #[case("JOBSET_NAME", "a,metadata.name=b", false)]
    #[case("POD_NAME", "Pod", false)]
    #[case("POD_NAME", "..", false)]
    fn value_out_of_range_is_refused_with_the_variable_and_the_value(
        #[case] variable: &'static str,
        #[case] value: &str,
        #[case] accepted: bool,
    ) {
        match parse(&[(variable, value)]) {
            Ok(_) => assert!(accepted, "{variable}={value:?} was accepted"),
            Err(error) => {
                assert!(!accepted, "{error}");
                let text = error.to_string();
                assert!(text.contains(variable) && text.contains(&format!("{value:?}; it must be ")), "{text}");
                assert_eq!(text.lines().count(), 1);
            }
        }
    }

    #[test]
    fn line_break_in_a_value_does_not_break_the_line() {
        let text = parse(&[("RESTART_POD_IN_PLACE_EXIT_CODE", "8\n1")]).unwrap_err().to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[test]
    fn help_and_version_need_no_environment() {
        let parse = |arg: &str| Command::parse([arg.to_owned()], |_| None);
        assert_eq!(parse("--help"), Ok(Command::Help));
        assert_eq!(parse("--version"), Ok(Command::Version));
        assert_eq!(parse("--verbose"), Err(ArgsError::Argument("--verbose".to_owned())));
        assert!(matches!(Command::parse([], |_| None), Err(ArgsError::Missing { variable: "NAMESPACE", .. })));
    }
}
