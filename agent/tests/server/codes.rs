//! How a supervised container ends: as its worker does, or as it is asked to.

use anyhow::Result;
use rstest::rstest;
use rustix::process::Signal;

use super::fixture::{Space, shared};

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

    let space = Space::new("asked-while-it-waits").await?;
    let mut agent = space.supervise("echo on >log", &[])?;
    space.reported(1).await?;
    agent.signal(Signal::TERM).await?;
    assert_eq!((agent.ended().await?, space.written("log").as_str()), (143, ""));
    Ok(())
}

#[tokio::test]
async fn other_signals_are_the_workers() -> Result<()> {
    let space = Space::new("signals").await?;
    let traps = "for s in HUP INT QUIT USR1 USR2 ALRM WINCH; do trap \"echo $s >>log\" $s; done; echo on >log";
    let agent = space.supervise(&format!("{traps}; while :; do sleep 0.05; done"), &[])?;
    space.lift(1).await?;
    let mut wanted = "on\n".to_owned();
    space.writes("log", &wanted).await?;
    for (signal, name) in [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::ALARM, "ALRM"),
        (Signal::WINCH, "WINCH"),
    ] {
        agent.signal(signal).await?;
        wanted = format!("{wanted}{name}\n");
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
