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
    let runtime = runtime.enable_all().build().context("cannot start threads")?;
    let end = runtime.block_on(program);
    // The threads end with the process. Waiting for them would wait for one that stands still, and would take the timers away
    // from those that go on.
    std::mem::forget(runtime);
    end
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
    use std::sync::mpsc;
    use std::time::Duration;

    use anyhow::anyhow;
    use tokio::runtime::Handle;

    use super::*;

    #[test]
    fn thread_that_outlives_the_program_keeps_its_timers() {
        let (ticks, ticked) = mpsc::channel();
        let ended = block_on(Some(1), async move {
            let runtime = Handle::current();
            std::thread::spawn(move || {
                runtime.block_on(async {
                    while ticks.send(()).is_ok() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                });
            });
            Err(anyhow!("the end"))
        });
        assert!(ended.is_err());
        while ticked.try_recv().is_ok() {}
        for _ in 0..10 {
            ticked.recv_timeout(Duration::from_mins(1)).unwrap();
        }
    }

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
