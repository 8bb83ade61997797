//! The exit code of a supervised container, and the signals that it forwards.

use std::time::{Duration, Instant};

use anyhow::Result;
use rstest::rstest;
use rustix::process::Signal;

use super::fixture::{TestNamespace, shared};

/// Longest time for an end at once, on a machine that runs all tests at once. The default grace period of a Pod is longer.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A namespace whose JobSet does not restart in place: the container ends whenever the worker ends.
async fn bypassed(namespace: &str) -> Result<TestNamespace> {
    TestNamespace::of(shared().await?, namespace, "Recreate").await
}

#[rstest]
#[case::success("ends-with-0", "exit 0", 0)]
#[case::failure("ends-with-7", "exit 7", 7)]
#[case::killed("ends-killed", "kill -KILL $$", 137)]
#[case::terminated("ends-terminated", "kill -TERM $$", 143)]
#[case::real_time_signal("ends-real-time", "kill -40 $$", 168)]
#[case::beside_an_orphan("ends-with-orphan", "(sleep 1000 &); exit 5", 5)]
#[tokio::test]
async fn worker_exit_code_is_the_containers(
    #[case] namespace: &str,
    #[case] script: &str,
    #[case] code: i32,
) -> Result<()> {
    let space = bypassed(namespace).await?;
    assert_eq!(space.supervise(script, &[])?.exit_code().await?, code);
    Ok(())
}

#[rstest]
#[case::not_found("no-such-program", &["no-such-program"], 127)]
#[case::not_found_by_path("no-such-path", &["/no/such/program", "-x"], 127)]
#[case::folder("a-folder", &["/etc"], 126)]
#[case::not_executable("not-executable", &["/etc/passwd"], 126)]
#[tokio::test]
async fn command_that_cannot_start_exits_with_a_shells_code(
    #[case] namespace: &str,
    #[case] command: &[&str],
    #[case] code: i32,
) -> Result<()> {
    let space = bypassed(namespace).await?;
    let mut agent = space.run(&[&["supervise", "--"], command].concat(), &[])?;
    assert_eq!(agent.exit_code().await?, code);
    let log = space.file("stderr");
    assert!(log.contains("cannot start the worker") && log.contains(command[0]), "{log}");
    Ok(())
}

#[tokio::test]
async fn sigterm_while_worker_runs_exits_with_143() -> Result<()> {
    let space = TestNamespace::new("terminated-while-running").await?;
    let mut agent =
        space.supervise("trap 'echo terminated >log; exit 0' TERM; echo on >log; while :; do sleep 0.1; done", &[])?;
    space.lift(1).await?;
    space.wait_for_file("log", "on\n").await?;
    agent.signal(Signal::TERM).await?;
    assert_eq!(agent.exit_code().await?, 143);
    assert_eq!(space.file("log"), "terminated\n");
    Ok(())
}

#[rstest]
#[case::of_the_first_epoch("terminated-at-barrier", 0, "")]
#[case::of_a_later_epoch("terminated-at-later-barrier", 2, "on\non\n")]
#[tokio::test]
async fn sigterm_at_the_barrier_exits_at_once(
    #[case] namespace: &str,
    #[case] failures: i32,
    #[case] log: &str,
) -> Result<()> {
    let space = TestNamespace::new(namespace).await?;
    let mut agent = space.supervise("echo on >>log; exit 1", &[])?;
    for epoch in 1..=failures {
        space.lift(epoch).await?;
    }
    space.wait_for_report(failures + 1).await?;
    let start = Instant::now();
    agent.signal(Signal::TERM).await?;
    assert_eq!((agent.exit_code().await?, space.file("log").as_str()), (143, log));
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    Ok(())
}

/// The agent may handle the lift and the signal in either order, and may get the signal while it starts the worker.
#[tokio::test]
async fn sigterm_as_the_barrier_lifts_exits_at_once() -> Result<()> {
    let space = TestNamespace::new("terminated-at-start").await?;
    for (epoch, wait) in (1..).zip([0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30]) {
        let mut agent = space.supervise("exec sleep 1000", &[("STOP_GRACE_SECONDS", "600")])?;
        space.wait_for_report(epoch).await?;
        let start = Instant::now();
        let terminate = async {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            agent.signal(Signal::TERM).await
        };
        tokio::try_join!(space.set_epochs(epoch, epoch - 1), terminate)?;
        assert_eq!(agent.exit_code().await?, 143, "SIGTERM {wait} ms after the lift");
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    }
    Ok(())
}

/// An agent finds several events at once after its node was busy or suspended.
#[tokio::test]
async fn lift_and_sigterm_after_a_suspension_exit_at_once() -> Result<()> {
    let space = TestNamespace::new("terminated-while-halted").await?;
    let mut agent = space.supervise("exec sleep 1000", &[("STOP_GRACE_SECONDS", "600")])?;
    space.wait_for_report(1).await?;
    agent.signal(Signal::STOP).await?;
    space.set_epochs(1, 0).await?;
    agent.signal(Signal::TERM).await?;
    let start = Instant::now();
    agent.signal(Signal::CONT).await?;
    assert_eq!(agent.exit_code().await?, 143);
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    Ok(())
}

/// Signals that have a meaning for the worker alone: a limit of time or size, the warning of a batch system, a real-time
/// signal.
#[tokio::test]
async fn other_signals_are_forwarded_to_the_worker() -> Result<()> {
    let space = TestNamespace::new("signals").await?;
    let signals = [1, 2, 3, 6, 10, 12, 14, 16, 18, 23, 24, 25, 26, 27, 28, 29, 30, 35, 40, 63, 64];
    let names = signals.map(|signal| signal.to_string()).join(" ");
    let traps = format!("for s in {names}; do trap \"echo $s >>log\" $s; done; echo on >log");
    let agent = space.supervise(&format!("{traps}; while :; do sleep 0.05; done"), &[])?;
    space.lift(1).await?;
    let mut expected = "on\n".to_owned();
    space.wait_for_file("log", &expected).await?;
    for signal in signals {
        agent.kill(signal).await?;
        expected = format!("{expected}{signal}\n");
        space.wait_for_file("log", &expected).await?;
    }
    Ok(())
}

#[tokio::test]
async fn standard_streams_are_the_workers() -> Result<()> {
    let space = bypassed("streams").await?;
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let mut agent = space.supervise("cat; echo to-stderr >&2", &[("JOBSET_AGENT_LOG", "off")])?;
    agent.write_stdin(&bytes).await?;
    agent.close_stdin();
    assert_eq!(agent.exit_code().await?, 0);
    assert!(std::fs::read(space.folder.path().join("stdout"))? == bytes);
    assert_eq!(space.file("stderr"), "to-stderr\n");
    Ok(())
}

/// Only the process group in the foreground may read from a terminal, so each worker must be put there.
#[tokio::test]
async fn worker_of_each_epoch_reads_from_the_terminal() -> Result<()> {
    let space = TestNamespace::new("terminal").await?;
    let script = "read -r line || line=nothing; echo \"$JOBSET_EPOCH $line\" >>log; exit 1";
    let mut terminal = space.supervise_at_terminal(script)?;
    for epoch in 1..=3 {
        space.lift(epoch).await?;
        terminal.write_stdin(b"word\n").await?;
        space.wait_for_report(epoch + 1).await?;
    }
    space.wait_for_file("log", "1 word\n2 word\n3 word\n").await
}
