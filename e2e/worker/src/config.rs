//! What the worker is told by its environment.

use std::path::PathBuf;
use std::time::Duration;

/// Text of `--help`.
pub(crate) const HELP: &str = "\
jobset-test-worker: the worker container of the tests and of the demo.

Usage: jobset-test-worker [--help]
       jobset-test-worker resolve-loop NAME [ADDRESSES]

Without arguments it runs as a worker: it writes down when it starts and ends, and serves
  GET  /                       who it is
  POST /exit?code=N            ends with exit code N, 0 to 255 (GET does the same); with &message=TEXT after writing
                               TEXT to the termination log
  GET  /resolve?name=H         IPv4 addresses of H, found through /etc/resolv.conf
  POST /write?name=F&text=T    writes the file F in SCRATCH_DIR
  GET  /read?name=F            reads it
  GET  /journal                its journal
resolve-loop asks for NAME until it has that many IPv4 addresses (default 1), writes them down and ends with 0.

Environment, all optional:
  POD_NAME POD_UID NODE_NAME POD_IP JOBSET_EPOCH   written down with each event
  JOURNAL_DIR       folder of the journal <POD_NAME>.jsonl (needs POD_NAME); without it only stdout
  SCRATCH_DIR       folder of /write and /read
  WORKER_PORT       port to serve on                                    [default: 9000]
  RUN_SECONDS       ends with 0 after so many seconds                   [default: runs for ever]
  IGNORE_SIGTERM=1  stays alive on SIGTERM; else it ends with 143
  INIT_RESOLVE      the same as the arguments: resolve-loop $INIT_RESOLVE $INIT_RESOLVE_ADDRESSES
  RESOLVE_SECONDS   resolve-loop gives up with 1 after so many seconds  [default: 120]
  RESOLV_CONF       file that names the DNS servers                     [default: /etc/resolv.conf]
";

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mode {
    /// Print [`HELP`].
    Help,
    /// Run as a worker.
    Worker,
    /// Ask for a name until it has enough addresses.
    ResolveLoop {
        /// The name.
        name: String,
        /// How many addresses are enough.
        addresses: usize,
    },
}

/// Who and where this container is, and how it behaves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) mode: Mode,
    pub(crate) pod: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) node: Option<String>,
    pub(crate) ip: Option<String>,
    pub(crate) epoch: Option<i32>,
    pub(crate) journal: Option<PathBuf>,
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) port: u16,
    pub(crate) run: Option<Duration>,
    pub(crate) ignore_sigterm: bool,
    pub(crate) resolve_limit: Duration,
    pub(crate) resolv_conf: PathBuf,
}

impl Config {
    /// Reads the arguments (without the program's name) and the environment; an empty variable counts as absent.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub(crate) fn parse(args: &[String], env: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let env = |name: &str| env(name).filter(|value| !value.is_empty());
        let count = |value: Option<&str>| match value {
            None => Ok(1),
            Some(text) => text.parse().map_err(|_| format!("{text:?} is not a number of addresses")),
        };
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let mode = match (words.as_slice(), env("INIT_RESOLVE")) {
            (["--help" | "-h"], _) => Mode::Help,
            (["resolve-loop", name], _) => Mode::ResolveLoop { name: (*name).to_owned(), addresses: 1 },
            (["resolve-loop", name, addresses], _) => {
                Mode::ResolveLoop { name: (*name).to_owned(), addresses: count(Some(*addresses))? }
            }
            ([], Some(name)) => Mode::ResolveLoop { name, addresses: count(env("INIT_RESOLVE_ADDRESSES").as_deref())? },
            ([], None) => Mode::Worker,
            (other, _) => return Err(format!("unknown arguments {other:?}; see jobset-test-worker --help")),
        };
        let pod = env("POD_NAME");
        let journal = match (env("JOURNAL_DIR"), &pod) {
            (None, _) => None,
            (Some(dir), Some(pod)) => Some(PathBuf::from(dir).join(format!("{pod}.jsonl"))),
            (Some(_), None) => return Err("JOURNAL_DIR is set, but POD_NAME is not; set it from metadata.name".into()),
        };
        Ok(Self {
            mode,
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
            run: env("RUN_SECONDS").map(|text| seconds("RUN_SECONDS", &text)).transpose()?,
            ignore_sigterm: env("IGNORE_SIGTERM").as_deref() == Some("1"),
            resolve_limit: seconds("RESOLVE_SECONDS", env("RESOLVE_SECONDS").as_deref().unwrap_or("120"))?,
            resolv_conf: env("RESOLV_CONF").map_or_else(|| "/etc/resolv.conf".into(), PathBuf::from),
            pod,
        })
    }
}

fn seconds(variable: &str, text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("{variable} is {text:?}; it must be a number of seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str], env: &[(&str, &str)]) -> Result<Config, String> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        Config::parse(&args, |name| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn nothing_is_required() {
        let config = parse(&[], &[]).unwrap();
        assert_eq!((config.mode, config.port, config.run, config.journal), (Mode::Worker, 9000, None, None));
    }

    #[test]
    fn journal_is_named_after_the_pod() {
        let config = parse(&[], &[("JOURNAL_DIR", "/journal"), ("POD_NAME", "a-0"), ("JOBSET_EPOCH", "3")]).unwrap();
        assert_eq!((config.journal, config.epoch), (Some("/journal/a-0.jsonl".into()), Some(3)));
        assert!(parse(&[], &[("JOURNAL_DIR", "/journal")]).unwrap_err().contains("POD_NAME"));
    }

    #[test]
    fn resolve_loop_comes_from_arguments_or_environment() {
        let wanted = Mode::ResolveLoop { name: "peer".into(), addresses: 2 };
        assert_eq!(parse(&["resolve-loop", "peer", "2"], &[]).unwrap().mode, wanted);
        let env = [("INIT_RESOLVE", "peer"), ("INIT_RESOLVE_ADDRESSES", "2")];
        assert_eq!(parse(&[], &env).unwrap().mode, wanted);
        assert!(parse(&["resolve-loop"], &[]).is_err());
        assert!(parse(&["resolve-loop", "peer", "two"], &[]).is_err());
    }

    #[test]
    fn wrong_numbers_are_named() {
        assert!(parse(&[], &[("WORKER_PORT", "x")]).unwrap_err().contains("WORKER_PORT"));
        assert!(parse(&[], &[("RUN_SECONDS", "-1")]).unwrap_err().contains("RUN_SECONDS"));
        assert_eq!(parse(&[], &[("RUN_SECONDS", "0.5")]).unwrap().run, Some(Duration::from_millis(500)));
    }
}
