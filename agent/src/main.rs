//! `jobset-agent`: see `jobset-agent --help`.

use std::fmt::Display;
use std::io::{self, Stderr, Write as _, stderr, stdout};
use std::process::ExitCode;

use anyhow::Context as _;
use jobset_agent::args::{Command, Config, HELP};
use jobset_agent::install::install;
use jobset_agent::signals::block_terminate;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing_subscriber::fmt::writer::OptionalWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Exit code for an invalid command line or environment.
const USAGE: u8 = 2;
/// The file with the namespace of a Pod's ServiceAccount.
const NAMESPACE_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

fn main() -> ExitCode {
    if let Err(error) = block_terminate() {
        print_error(&format_args!("cannot block SIGTERM, so an early one may be lost: {error}"));
    }
    let namespace_of_token = || std::fs::read_to_string(NAMESPACE_PATH).ok().map(|text| text.trim().to_owned());
    match Command::parse(
        std::env::args_os().skip(1),
        |name| std::env::var_os(name),
        namespace_of_token,
        std::path::Path::is_file,
    ) {
        Ok(Command::Help) => {
            print(&HELP.trim_end());
            ExitCode::SUCCESS
        }
        Ok(Command::Version) => {
            print(&format_args!("jobset-agent {}", env!("CARGO_PKG_VERSION")));
            ExitCode::SUCCESS
        }
        Ok(Command::Install(folder)) => match install(&folder) {
            Ok(path) => {
                print(&path.display());
                ExitCode::SUCCESS
            }
            Err(error) => {
                print_error(&format_args!("cannot copy this binary to {}: {error}", folder.display()));
                ExitCode::FAILURE
            }
        },
        Ok(Command::Run(config)) => run(*config).unwrap_or_else(|error| {
            // Only the first source is printed: the client's errors repeat their own sources in their text.
            let source = error.chain().nth(1).map(|source| format!(": {source}")).unwrap_or_default();
            print_error(&format_args!("{error}{source}"));
            ExitCode::FAILURE
        }),
        Err(error) => {
            print_error(&error);
            ExitCode::from(USAGE)
        }
    }
}

/// Prints to standard output. `println!` would panic when its reader has ended.
fn print(text: &dyn Display) {
    let _ = writeln!(stdout(), "{text}");
}

/// Prints to standard error.
fn print_error(text: &dyn Display) {
    let _ = writeln!(stderr(), "jobset-agent: {text}");
}

/// Standard error for one log line, or nothing while standard error is full. The worker of a supervisor shares it, and
/// its reader may be slow or absent. A line that waits would block the agent and with it the whole group, so it is dropped.
fn log_writer() -> OptionalWriter<Stderr> {
    let stderr = stderr();
    let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
    let is_full = poll(&mut ready, Some(&Timespec::default())) == Ok(0);
    if is_full { OptionalWriter::none() } else { OptionalWriter::some(stderr) }
}

fn run(config: Config) -> anyhow::Result<ExitCode> {
    let lines = tracing_subscriber::fmt::layer().with_writer(log_writer).with_ansi(false).compact();
    tracing_subscriber::registry().with(lines).with(config.log.clone()).init();
    let exit_code = run_to_end(jobset_agent::run::run(config)).context("cannot start the runtime")??;
    Ok(ExitCode::from(exit_code))
}

/// Runs a future to its end. Does not wait for work on other threads: a look-up of the relay's name may hang there for as long as
/// the resolver tries.
fn run_to_end<T>(future: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(result)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn agent_ends_while_a_look_up_hangs() {
        let (answer, look_up) = channel::<()>();
        let (ended, end) = channel();
        std::thread::spawn(move || {
            let code = run_to_end(async {
                tokio::task::spawn_blocking(move || look_up.recv());
                81
            });
            ended.send(code.unwrap())
        });
        assert_eq!(end.recv_timeout(Duration::from_mins(1)), Ok(81));
        drop(answer);
    }
}
