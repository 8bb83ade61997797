//! The options of each command.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as Arguments, ValueEnum, ValueHint};
use k8s_openapi::jiff::SignedDuration;

use crate::names;
use crate::wait::Goal;

/// The JobSets of a command: one, or a list of them.
#[derive(Clone, Debug, Arguments)]
pub struct JobSetsArgs {
    /// Name of the JobSet, or jobset/NAME. Without a name, the command lists all JobSets.
    #[arg(value_parser = names::jobset)]
    pub name: Option<String>,

    /// List the JobSets of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "name")]
    pub all_namespaces: bool,

    /// List the JobSets with these labels, such as team=vision.
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "name", value_hint = ValueHint::Other)]
    pub selector: Option<String>,
}

/// `status`.
#[derive(Clone, Debug, Arguments)]
pub struct StatusArgs {
    #[command(flatten)]
    pub jobsets: JobSetsArgs,

    /// Show each Pod on its own line, also where many are alike.
    #[arg(long, requires = "name")]
    pub pods: bool,

    /// Show the report again after each change.
    #[arg(short, long)]
    pub watch: bool,
}

/// `nodes`.
#[derive(Clone, Debug, Arguments)]
pub struct NodesArgs {
    /// Of the JobSets of all namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// Of the JobSets with these labels, such as team=vision.
    #[arg(short = 'l', long, value_name = "SELECTOR", value_hint = ValueHint::Other)]
    pub selector: Option<String>,

    /// Show the report again after each change.
    #[arg(short, long)]
    pub watch: bool,
}

/// `goodput`.
#[derive(Clone, Debug, Arguments)]
pub struct GoodputArgs {
    #[command(flatten)]
    pub jobsets: JobSetsArgs,

    /// Show the report again after each change.
    #[arg(short, long)]
    pub watch: bool,
}

/// `restarts` and `explain`.
#[derive(Clone, Debug, Arguments)]
pub struct NamedArgs {
    /// Name of the JobSet, or jobset/NAME.
    #[arg(value_parser = names::jobset)]
    pub name: String,

    /// Show the report again after each change.
    #[arg(short, long)]
    pub watch: bool,
}

/// `wait`.
#[derive(Clone, Debug, Arguments)]
pub struct WaitArgs {
    /// Name of the JobSet, or jobset/NAME.
    #[arg(value_parser = names::jobset)]
    pub name: String,

    /// What to wait for.
    #[arg(long = "for", value_enum, value_name = "GOAL")]
    pub goal: Goal,

    /// How long to wait, such as 30s, 10m or 1h30m. Without it, the command waits without limit.
    #[arg(long, value_name = "TIME", value_parser = limit, value_hint = ValueHint::Other)]
    pub timeout: Option<Duration>,
}

/// `logs`.
// Each is an option of its own.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug, Arguments)]
pub struct LogsArgs {
    /// Name of the JobSet, or jobset/NAME.
    #[arg(value_parser = names::jobset)]
    pub name: String,

    /// Only of this epoch.
    #[arg(long, value_name = "N", conflicts_with = "previous", value_parser = clap::value_parser!(i32).range(1..), value_hint = ValueHint::Other)]
    pub epoch: Option<i32>,

    /// Only of workers that have failed, as far as their Pods and the last restarts tell.
    #[arg(long)]
    pub failed: bool,

    /// Of the epoch before the present one; without epochs, of the run of the container before.
    #[arg(short, long)]
    pub previous: bool,

    /// Print lines as they are written, until Ctrl-C, or until the JobSet has finished or is deleted.
    #[arg(short, long, conflicts_with = "previous")]
    pub follow: bool,

    /// Container. The default is the first one of the Pod, which is the worker.
    #[arg(short, long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub container: Option<String>,

    /// Only of Pods with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR", value_hint = ValueHint::Other)]
    pub selector: Option<String>,

    /// Number of last lines to show of each log; -1 for all.
    #[arg(long, value_name = "LINES", default_value_t = -1, allow_negative_numbers = true, value_hint = ValueHint::Other)]
    pub tail: i64,

    /// Most logs to follow at the same time.
    #[arg(long, value_name = "N", default_value_t = 100, value_hint = ValueHint::Other)]
    pub max_log_requests: usize,
}

/// `suspend`, `resume`, and a part of `restart`.
#[derive(Clone, Debug, Arguments)]
pub struct ChangeArgs {
    /// Name of the JobSet, or jobset/NAME.
    #[arg(value_parser = names::jobset)]
    pub name: String,

    /// How long to wait for the controller, such as 30s or 10m. The change stays when the time has passed.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = limit, value_hint = ValueHint::Other)]
    pub timeout: Duration,
}

/// `restart`.
#[derive(Clone, Debug, Arguments)]
pub struct RestartArgs {
    /// The JobSet, and how long to wait.
    #[command(flatten)]
    pub change: ChangeArgs,

    /// Why, in one line of at most 200 characters. Events, status and `kubectl jobset restarts` show it.
    #[arg(long, value_name = "TEXT", value_parser = reason, value_hint = ValueHint::Other)]
    pub reason: Option<String>,

    /// The Pod because of which the group restarts. If it is gone when the controller reads the request, nothing restarts.
    #[arg(long, value_name = "POD", value_parser = names::pod, value_hint = ValueHint::Other)]
    pub pod: Option<String>,

    /// Do not count the restart towards maxRestarts. One such restart in 10 minutes is possible.
    #[arg(long)]
    pub uncounted: bool,
}

/// A reason of a restart: room is left for the name of the user.
fn reason(text: &str) -> Result<String, String> {
    let is_line = !text.trim().is_empty() && text.chars().count() <= 200 && !text.contains(char::is_control);
    if is_line { Ok(text.to_owned()) } else { Err("must be one line of 1 to 200 characters".to_owned()) }
}

/// `ui`.
#[derive(Clone, Debug, Arguments)]
pub struct UiArgs {
    /// Name of the JobSet, or jobset/NAME. Without a name, the page lists all JobSets.
    #[arg(value_parser = names::jobset)]
    pub name: Option<String>,

    /// Show the JobSets of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "name")]
    pub all_namespaces: bool,

    /// Port on 127.0.0.1. With 0, the system chooses a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0, value_hint = ValueHint::Other)]
    pub port: u16,

    /// Do not open the page in a browser.
    #[arg(long)]
    pub no_browser: bool,
}

/// A time limit as Go writes durations, such as `1m30s`.
fn limit(text: &str) -> Result<Duration, String> {
    let signed: SignedDuration = text.parse().map_err(|_| "must be a duration such as 30s, 10m or 1h30m".to_owned())?;
    let limit = Duration::try_from(signed).map_err(|_| "must not be negative".to_owned())?;
    if limit.is_zero() { Err("must not be zero".to_owned()) } else { Ok(limit) }
}

/// `validate`.
#[derive(Clone, Debug, Arguments)]
pub struct ValidateArgs {
    /// File, folder (its .yaml, .yml and .json files), or - for standard input. May be repeated. A file is JSON, or YAML
    /// with any number of documents.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    pub filenames: Vec<PathBuf>,

    /// Image of the agent, as the webhook's flag sets it. Without it, the command assumes an image and adds a note.
    #[arg(long, value_name = "IMAGE", value_hint = ValueHint::Other)]
    pub agent_image: Option<String>,

    /// Feature gates of the webhook, such as InPlaceRestart=false.
    #[arg(long, default_value_t, value_name = "GATES", value_hint = ValueHint::Other)]
    pub feature_gates: jobset_api::gates::Gates,
}

/// Shells that completion supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
    /// PowerShell.
    Powershell,
    /// kubectl's completion of plugins: the program kubectl_complete-jobset.
    Kubectl,
}
