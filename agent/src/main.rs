//! `jobset-agent`: see `jobset-agent --help`.

use std::error::Error as _;
use std::fmt::Display;
use std::io::{self, Stderr, Write as _, stderr, stdout};
use std::process::ExitCode;
use std::time::Duration;

use jobset_agent::annotation::Annotation;
use jobset_agent::args::{Command, Config, HELP};
use jobset_agent::install::install;
use jobset_agent::log;
use jobset_agent::run;
use jobset_agent::signals::{Signals, block_terminate};
use jobset_agent::termination_log;
use k8s_openapi::jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing_subscriber::Layer as _;
use tracing_subscriber::fmt::writer::OptionalWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Exit code for an invalid command line or environment.
const USAGE: u8 = 2;
/// Exit code of an agent that cannot start for another reason.
const FAILURE: u8 = 1;
/// Exit code of an agent that gets SIGTERM after it has failed to start: 128 and the number of SIGTERM.
const TERMINATED: u8 = 143;
/// How long an agent that cannot start waits before it exits. The kubelet restarts all containers of a Pod without a back-off.
const RESTART_DELAY: Duration = Duration::from_secs(10);
/// The file with the namespace of a Pod's ServiceAccount.
const NAMESPACE_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

fn main() -> ExitCode {
    let start = Annotation::started(Timestamp::now());
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
        Ok(Command::Help) => print(&HELP.trim_end()),
        Ok(Command::Version) => print(&format_args!("jobset-agent {}", env!("CARGO_PKG_VERSION"))),
        Ok(Command::Install(folder)) => match install(&folder) {
            Ok(path) => print(&path.display()),
            Err(error) => {
                tell(&format_args!("cannot copy this binary to {}: {error}", folder.display()));
                return ExitCode::FAILURE;
            }
        },
        Ok(Command::Run(config)) => return ExitCode::from(run_agent(*config, start)),
        Err(error) => {
            tell(&error);
            let delay = run_to_end(async { Ok(exit_delayed(&mut Signals::listen(false)?, USAGE).await) });
            return ExitCode::from(delay.unwrap_or(USAGE));
        }
    }
    ExitCode::SUCCESS
}

/// Prints to standard output. `println!` would panic when its reader has ended.
fn print(text: &dyn Display) {
    let _ = writeln!(stdout(), "{text}");
}

fn print_error(text: &dyn Display) {
    let _ = writeln!(stderr(), "jobset-agent: {text}");
}

/// Prints why the agent cannot start, and leaves it in the status of the Pod.
fn tell(error: &dyn Display) {
    print_error(error);
    termination_log::write(&error.to_string());
}

/// Waits until the kubelet may restart the container of an agent that cannot start. Returns the exit code.
async fn exit_delayed(signals: &mut Signals, code: u8) -> u8 {
    // A person outside of a Pod restarts nothing.
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        return code;
    }
    tokio::time::timeout(RESTART_DELAY, signals.terminated()).await.map_or(code, |()| TERMINATED)
}

/// Standard error for one log line, or nothing while standard error is full. The worker of a supervisor shares it, and
/// its reader may be slow or absent. A line that waits would block the agent and with it the whole group, so it is dropped.
fn log_writer() -> OptionalWriter<Stderr> {
    let stderr = stderr();
    let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
    let is_full = poll(&mut ready, Some(&Timespec::default())) == Ok(0);
    if is_full { OptionalWriter::none() } else { OptionalWriter::some(stderr) }
}

/// Runs the agent. Returns its exit code.
fn run_agent(config: Config, start: Annotation) -> u8 {
    let lines = tracing_subscriber::fmt::layer().with_writer(log_writer).with_ansi(false).compact();
    tracing_subscriber::registry().with(lines.with_filter(log::filter(config.log.clone()))).init();
    let ended = run_to_end(async {
        let mut signals = Signals::listen(config.role.supervises())?;
        match run::run(config, start, &mut signals).await {
            Ok(code) => Ok(code),
            Err(error) => {
                // Only the first source is printed: the client's errors repeat their own sources in their text.
                let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
                tell(&format_args!("{error}{source}"));
                Ok(exit_delayed(&mut signals, FAILURE).await)
            }
        }
    });
    ended.unwrap_or_else(|error| {
        tell(&format_args!("cannot start the runtime, or receive signals: {error}"));
        FAILURE
    })
}

/// Runs a future to its end. Does not wait for work on other threads: a look-up of the relay's name may hang there for as long as
/// the resolver tries.
fn run_to_end<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    result
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
                Ok(81)
            });
            ended.send(code.unwrap())
        });
        assert_eq!(end.recv_timeout(Duration::from_mins(1)), Ok(81));
        drop(answer);
    }
}
