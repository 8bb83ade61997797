//! The configuration of the worker, which is read from its environment.

use std::path::PathBuf;
use std::time::Duration;

use crate::steps::milliseconds;

pub(crate) const HELP: &str = "\
jobset-test-worker: the worker container of the tests and of the demo.

Usage: jobset-test-worker [--help]

It writes down when it starts and when it ends, and serves
  GET  /                       who it is
  POST /exit?code=N            ends with exit code N, 0 to 255 (GET does the same); with &message=TEXT after writing
                               TEXT to the termination log and to standard error
  GET  /resolve?name=H         IP addresses of H, found by the C library
  POST /write?name=F&text=T    writes the file F in SCRATCH_DIR
  GET  /read?name=F            reads it
  POST /hang?how=HOW           makes no step any longer: HOW is wait, loop, stop (as by SIGSTOP), or none to go on

Environment, all optional:
  POD_NAME POD_UID NODE_NAME POD_IP JOBSET_EPOCH   written down with each event
  JOURNAL_DIR       folder of the journal <POD_NAME>.jsonl (needs POD_NAME); without it only stdout
  SCRATCH_DIR       folder of /write and /read
  WORKER_PORT       port to serve on                                    [default: 9000]
  IGNORE_SIGTERM=1  stays alive on SIGTERM; without it ends with 143
  PEERS=H,H         looks these names up and connects to their WORKER_PORT every 3 s; ends with 1 if that fails
  STEP_MILLISECONDS=N   writes the number of its step to JOBSET_PROGRESS_FILE as often, from 1 on
  LINES_PER_STEP=N  writes N lines to stdout for each step, of which the last is `step NUMBER`
  EXIT_AT_STEP=N    ends with exit code 1 at this step
  EXIT_AT_START=N:TEXT   writes TEXT to standard error and ends with exit code N at once
";

/// Who and where this container is, and how it behaves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) pod: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) node: Option<String>,
    pub(crate) ip: Option<String>,
    pub(crate) epoch: Option<i32>,
    pub(crate) journal: Option<PathBuf>,
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) port: u16,
    pub(crate) ignore_sigterm: bool,
    /// Names of the workers that it needs.
    pub(crate) peers: Vec<String>,
    /// Exit code and last words of a worker that ends at once.
    pub(crate) exit_at_start: Option<(u8, String)>,
    /// File for its steps, and the time of each.
    pub(crate) progress: Option<PathBuf>,
    pub(crate) step: Option<Duration>,
    pub(crate) lines: u32,
    pub(crate) last_step: Option<u64>,
}

impl Config {
    /// Reads the environment; an empty variable counts as absent.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub(crate) fn parse(env: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let env = |name: &str| env(name).filter(|value| !value.is_empty());
        let pod = env("POD_NAME");
        let journal = match (env("JOURNAL_DIR"), &pod) {
            (None, _) => None,
            (Some(dir), Some(pod)) => Some(PathBuf::from(dir).join(format!("{pod}.jsonl"))),
            (Some(_), None) => return Err("JOURNAL_DIR is set, but POD_NAME is not; set it from metadata.name".into()),
        };
        Ok(Self {
            uid: env("POD_UID"),
            node: env("NODE_NAME"),
            ip: env("POD_IP"),
            // The downward API gives an empty value before the agent has written the annotation.
            epoch: env("JOBSET_EPOCH").and_then(|epoch| epoch.parse().ok()),
            journal,
            scratch: env("SCRATCH_DIR").map(PathBuf::from),
            port: match env("WORKER_PORT") {
                None => 9000,
                Some(port) => port.parse().map_err(|_| format!("WORKER_PORT is {port:?}; it must be a port"))?,
            },
            peers: env("PEERS").map_or_else(Vec::new, |names| names.split(',').map(str::to_owned).collect()),
            exit_at_start: env("EXIT_AT_START").map(|text| exit_at_start(&text)).transpose()?,
            ignore_sigterm: env("IGNORE_SIGTERM").as_deref() == Some("1"),
            progress: env("JOBSET_PROGRESS_FILE").map(PathBuf::from),
            step: env("STEP_MILLISECONDS").map(|text| step(&text)).transpose()?,
            lines: match env("LINES_PER_STEP") {
                None => 0,
                Some(lines) => {
                    lines.parse().map_err(|_| format!("LINES_PER_STEP is {lines:?}; it must be a number"))?
                }
            },
            last_step: match env("EXIT_AT_STEP") {
                None => None,
                Some(step) => Some(step.parse().map_err(|_| format!("EXIT_AT_STEP is {step:?}; it must be a number"))?),
            },
            pod,
        })
    }
}

fn step(text: &str) -> Result<Duration, String> {
    milliseconds(text).ok_or_else(|| format!("STEP_MILLISECONDS is {text:?}; it must be a number"))
}

fn exit_at_start(text: &str) -> Result<(u8, String), String> {
    let parsed = text.split_once(':').and_then(|(code, words)| Some((code.parse().ok()?, words.to_owned())));
    parsed.ok_or_else(|| format!("EXIT_AT_START is {text:?}; it must be an exit code, a colon and a text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(env: &[(&str, &str)]) -> Result<Config, String> {
        Config::parse(|name| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn environment_empty_gives_the_defaults() {
        let config = parse(&[]).unwrap();
        assert_eq!((config.port, config.journal), (9000, None));
    }

    #[test]
    fn journal_dir_set_names_the_journal_after_the_pod() {
        let config = parse(&[("JOURNAL_DIR", "/journal"), ("POD_NAME", "a-0"), ("JOBSET_EPOCH", "3")]).unwrap();
        assert_eq!((config.journal, config.epoch), (Some("/journal/a-0.jsonl".into()), Some(3)));
        assert!(parse(&[("JOURNAL_DIR", "/journal")]).unwrap_err().contains("POD_NAME"));
    }

    #[test]
    fn number_malformed_is_an_error_that_names_the_variable() {
        assert!(parse(&[("WORKER_PORT", "x")]).unwrap_err().contains("WORKER_PORT"));
        assert!(parse(&[("STEP_MILLISECONDS", "x")]).unwrap_err().contains("STEP_MILLISECONDS"));
        assert!(parse(&[("EXIT_AT_STEP", "x")]).unwrap_err().contains("EXIT_AT_STEP"));
        assert!(parse(&[("LINES_PER_STEP", "x")]).unwrap_err().contains("LINES_PER_STEP"));
        assert!(parse(&[("EXIT_AT_START", "256:x")]).unwrap_err().contains("EXIT_AT_START"));
    }

    #[test]
    fn exit_at_start_is_a_code_and_a_text() {
        let config = parse(&[("EXIT_AT_START", "7:loss: NaN")]).unwrap();
        assert_eq!(config.exit_at_start, Some((7, "loss: NaN".to_owned())));
    }
}
