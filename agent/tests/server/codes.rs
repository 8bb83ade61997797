//! How a supervised container ends: as its worker does, or as it is asked to.

use std::time::{Duration, Instant};

use anyhow::Result;
use rstest::rstest;
use rustix::process::Signal;

use super::fixture::{Space, shared};

/// Long before the thirty seconds are over that a kubelet gives a Pod, on a machine that runs all tests at once.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Without a restart in place, every end of the worker is the container's.
async fn bypassed(namespace: &str) -> Result<Space> {
    Space::of(shared().await?, namespace, "Recreate").await
}

#[rstest]
#[case::success("ends-with-0", "exit 0", 0)]
#[case::failure("ends-with-7", "exit 7", 7)]
#[case::killed("ends-killed", "kill -KILL $$", 137)]
#[case::terminated_by_itself("ends-terminated", "kill -TERM $$", 143)]
#[case::a_signal_without_a_name("ends-real-time", "kill -40 $$", 168)]
#[case::while_an_orphan_runs_on("ends-with-orphan", "(sleep 1000 &); exit 5", 5)]
#[tokio::test]
async fn the_container_ends_as_its_worker_does(
    #[case] namespace: &str,
    #[case] script: &str,
    #[case] code: i32,
) -> Result<()> {
    let space = bypassed(namespace).await?;
    assert_eq!(space.supervise(script, &[])?.ended().await?, code);
    Ok(())
}

#[rstest]
#[case::not_found("no-such-program", &["no-such-program"], 127)]
#[case::not_found_by_path("no-such-path", &["/no/such/program", "-x"], 127)]
#[case::a_folder("a-folder", &["/etc"], 126)]
#[case::not_executable("not-executable", &["/etc/passwd"], 126)]
#[tokio::test]
async fn a_command_that_cannot_be_started_ends_it_with_a_shells_code(
    #[case] namespace: &str,
    #[case] command: &[&str],
    #[case] code: i32,
) -> Result<()> {
    let space = bypassed(namespace).await?;
    let mut agent = space.run(&[&["supervise", "--"], command].concat(), &[])?;
    assert_eq!(agent.ended().await?, code);
    let said = space.written("stderr");
    assert!(said.contains("cannot start the worker") && said.contains(command[0]), "{said}");
    Ok(())
}

#[tokio::test]
async fn in_place_too_when_the_code_is_fatal_or_it_has_succeeded() -> Result<()> {
    for (namespace, script, code) in [("fatal", "exit 66", 66), ("succeeds", "exit 0", 0)] {
        let space = Space::new(namespace).await?;
        let mut agent = space.supervise(script, &[("FATAL_EXIT_CODES", "3,60-70")])?;
        space.lift(1).await?;
        assert_eq!(agent.ended().await?, code);
    }
    Ok(())
}

#[tokio::test]
async fn whoever_is_asked_to_end_before_its_worker_has_says_143() -> Result<()> {
    let space = Space::new("asked-to-end").await?;
    let mut agent =
        space.supervise("trap 'echo asked >log; exit 0' TERM; echo on >log; while :; do sleep 0.1; done", &[])?;
    space.lift(1).await?;
    space.writes("log", "on\n").await?;
    agent.signal(Signal::TERM).await?;
    assert_eq!(agent.ended().await?, 143);
    assert_eq!(space.written("log"), "asked\n");
    Ok(())
}

#[rstest]
#[case::of_its_first_epoch("asked-while-it-waits", 0, "")]
#[case::of_a_later_one("asked-while-it-waits-again", 2, "on\non\n")]
#[tokio::test]
async fn whoever_is_asked_to_end_at_the_barrier_ends_at_once(
    #[case] namespace: &str,
    #[case] failures: i32,
    #[case] log: &str,
) -> Result<()> {
    let space = Space::new(namespace).await?;
    let mut agent = space.supervise("echo on >>log; exit 1", &[])?;
    for epoch in 1..=failures {
        space.lift(epoch).await?;
    }
    space.reported(failures + 1).await?;
    let asked = Instant::now();
    agent.signal(Signal::TERM).await?;
    assert_eq!((agent.ended().await?, space.written("log").as_str()), (143, log));
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    Ok(())
}

/// The agent hears of both in either order, and of the end while it starts the worker.
#[tokio::test]
async fn whoever_is_asked_to_end_as_its_barrier_lifts_ends_at_once() -> Result<()> {
    let space = Space::new("asked-as-it-starts").await?;
    for (epoch, wait) in (1..).zip([0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30]) {
        let mut agent = space.supervise("exec sleep 1000", &[("STOP_GRACE_SECONDS", "600")])?;
        space.reported(epoch).await?;
        let asked = Instant::now();
        let ask = async {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            agent.signal(Signal::TERM).await
        };
        tokio::try_join!(space.say(epoch, epoch - 1), ask)?;
        assert_eq!(agent.ended().await?, 143, "{wait} ms after the lift was asked for");
        assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    }
    Ok(())
}

/// All that it is to hear, it hears at once when its node was busy or suspended.
#[tokio::test]
async fn whoever_finds_its_lift_and_its_end_together_ends_at_once() -> Result<()> {
    let space = Space::new("asked-while-halted").await?;
    let mut agent = space.supervise("exec sleep 1000", &[("STOP_GRACE_SECONDS", "600")])?;
    space.reported(1).await?;
    agent.signal(Signal::STOP).await?;
    space.say(1, 0).await?;
    agent.signal(Signal::TERM).await?;
    let asked = Instant::now();
    agent.signal(Signal::CONT).await?;
    assert_eq!(agent.ended().await?, 143);
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    Ok(())
}

/// Whatever has a meaning to the worker alone: the end of a budget of time or size, the warning of a batch system, a
/// real-time signal.
#[tokio::test]
async fn other_signals_are_the_workers() -> Result<()> {
    let space = Space::new("signals").await?;
    let signals = [1, 2, 3, 6, 10, 12, 14, 16, 18, 23, 24, 25, 26, 27, 28, 29, 30, 35, 40, 63, 64];
    let names = signals.map(|signal| signal.to_string()).join(" ");
    let traps = format!("for s in {names}; do trap \"echo $s >>log\" $s; done; echo on >log");
    let agent = space.supervise(&format!("{traps}; while :; do sleep 0.05; done"), &[])?;
    space.lift(1).await?;
    let mut wanted = "on\n".to_owned();
    space.writes("log", &wanted).await?;
    for signal in signals {
        agent.kill(signal).await?;
        wanted = format!("{wanted}{signal}\n");
        space.writes("log", &wanted).await?;
    }
    Ok(())
}

#[tokio::test]
async fn standard_streams_pass_through_untouched() -> Result<()> {
    let space = bypassed("streams").await?;
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let mut agent = space.supervise("cat; echo to-stderr >&2", &[("JOBSET_AGENT_LOG", "off")])?;
    agent.types(&bytes).await?;
    agent.types_no_more();
    assert_eq!(agent.ended().await?, 0);
    assert!(std::fs::read(space.folder.path().join("stdout"))? == bytes);
    assert_eq!(space.written("stderr"), "to-stderr\n");
    Ok(())
}

/// Only the process group in the foreground may read from a terminal: each worker has to be put there.
#[tokio::test]
async fn each_worker_may_read_from_the_terminal() -> Result<()> {
    let space = Space::new("terminal").await?;
    let script = "read -r line || line=nothing; echo \"$JOBSET_EPOCH $line\" >>log; exit 1";
    let mut terminal = space.at_a_terminal(script)?;
    for epoch in 1..=3 {
        space.lift(epoch).await?;
        terminal.types(b"word\n").await?;
        space.reported(epoch + 1).await?;
    }
    space.writes("log", "1 word\n2 word\n3 word\n").await
}
