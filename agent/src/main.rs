//! `jobset-agent`: see `jobset-agent --help`.

use std::fmt::Display;
use std::io::{Stderr, Write as _, stderr, stdout};
use std::process::ExitCode;

use anyhow::Context as _;
use jobset_agent::args::{Command, Config, HELP};
use jobset_agent::install::install;
use jobset_agent::signals::keep_terminate;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing_subscriber::fmt::writer::OptionalWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Exit code for a command line or an environment that cannot be used.
const USAGE: u8 = 2;
/// Where a Pod finds the namespace of its ServiceAccount's token.
const NAMESPACE_OF_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

fn main() -> ExitCode {
    if let Err(error) = keep_terminate() {
        complain(&format_args!("a SIGTERM may be missed: {error}"));
    }
    let namespace_of_token = || std::fs::read_to_string(NAMESPACE_OF_TOKEN).ok().map(|text| text.trim().to_owned());
    match Command::parse(
        std::env::args_os().skip(1),
        |name| std::env::var_os(name),
        namespace_of_token,
        std::path::Path::is_file,
    ) {
        Ok(Command::Help) => {
            say(&HELP.trim_end());
            ExitCode::SUCCESS
        }
        Ok(Command::Version) => {
            say(&format_args!("jobset-agent {}", env!("CARGO_PKG_VERSION")));
            ExitCode::SUCCESS
        }
        Ok(Command::Install(folder)) => match install(&folder) {
            Ok(path) => {
                say(&path.display());
                ExitCode::SUCCESS
            }
            Err(error) => {
                complain(&format_args!("cannot copy this binary to {}: {error}", folder.display()));
                ExitCode::FAILURE
            }
        },
        Ok(Command::Run(config)) => run(*config).unwrap_or_else(|error| {
            // The first source only: the client's errors repeat theirs in their own text.
            let source = error.chain().nth(1).map(|source| format!(": {source}")).unwrap_or_default();
            complain(&format_args!("{error}{source}"));
            ExitCode::FAILURE
        }),
        Err(error) => {
            complain(&error);
            ExitCode::from(USAGE)
        }
    }
}

/// Says it, if anybody is there to listen. `println!` would panic.
fn say(text: &dyn Display) {
    let _ = writeln!(stdout(), "{text}");
}

/// The same on standard error.
fn complain(text: &dyn Display) {
    let _ = writeln!(stderr(), "jobset-agent: {text}");
}

/// Standard error, unless that is full: the worker of a supervisor writes there as well, and while nobody reads it, a line that
/// waits would hold up the whole group. It is dropped instead.
fn log() -> OptionalWriter<Stderr> {
    let stderr = stderr();
    let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
    let is_full = poll(&mut ready, Some(&Timespec::default())) == Ok(0);
    if is_full { OptionalWriter::none() } else { OptionalWriter::some(stderr) }
}

fn run(config: Config) -> anyhow::Result<ExitCode> {
    let lines = tracing_subscriber::fmt::layer().with_writer(log).with_ansi(false).compact();
    tracing_subscriber::registry().with(lines).with(config.log.clone()).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let exit_code = runtime.block_on(jobset_agent::run::run(config))?;
    Ok(ExitCode::from(exit_code))
}
