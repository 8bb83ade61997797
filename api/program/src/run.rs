//! The runtime, the termination signals and the exit code.

use std::process::ExitCode;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Runs the program in a multi-threaded runtime with as many threads as the CPU limit allows, and at most `max_threads`.
/// Without `max_threads`, the environment variable `TOKIO_WORKER_THREADS` can set their number.
/// Prints an error to standard error, with the program's name.
pub fn run(name: &str, max_threads: Option<usize>, program: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    match block_on(max_threads, program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {}", describe(&error));
            ExitCode::FAILURE
        }
    }
}

fn block_on(max_threads: Option<usize>, program: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(limit) = max_threads {
        runtime.worker_threads(std::thread::available_parallelism().map_or(1, usize::from).min(limit));
    }
    runtime.enable_all().build().context("cannot start threads")?.block_on(program)
}

/// The error and its sources in one line. Leaves out a source whose text is part of the text before it: the errors of the
/// API server's client repeat their sources.
fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for source in error.chain() {
        let part = source.to_string().replace('\n', " ");
        if text.is_empty() {
            text = part;
        } else if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
    }
    text
}

/// A token that is cancelled on the first SIGTERM or SIGINT.
///
/// # Errors
/// If the signals cannot be received.
pub fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot receive SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot receive SIGINT")?;
    let stop = CancellationToken::new();
    let cancelled = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        cancelled.cancel();
    });
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn error_is_described_in_one_line_with_its_sources() {
        let error = anyhow!("refused\nby the system").context("cannot listen on 0.0.0.0:80");
        assert_eq!(describe(&error), "cannot listen on 0.0.0.0:80: refused by the system");
    }

    #[test]
    fn error_source_that_is_repeated_is_described_once() {
        let error = anyhow!("no route").context("cannot connect: no route").context("no API server");
        assert_eq!(describe(&error), "no API server: cannot connect: no route");
    }
}
