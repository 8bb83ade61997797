//! Epochs of a supervisor: when the worker runs, in which one, and what the API server is asked for.

use anyhow::Result;
use rustix::process::Signal;

use super::fixture::{Space, plane, shared};

/// A worker that writes down its epoch, and runs until it is asked to end.
const RUNS: &str = "echo $JOBSET_EPOCH >>log; exec sleep 1000";

#[tokio::test]
async fn a_worker_is_stopped_and_started_again_without_the_container_ending() -> Result<()> {
    let space = Space::new("stopped").await?;
    let _agent = space.supervise(RUNS, &[])?;
    space.reported(1).await?;
    assert_eq!(space.written("log"), "", "it waits for its epoch");
    space.say(1, 0).await?;
    space.writes("log", "1\n").await?;
    let before = space.requests(shared().await?)?;
    for (epoch, log) in [(2, "1\n2\n"), (3, "1\n2\n3\n"), (4, "1\n2\n3\n4\n")] {
        space.say(epoch - 1, epoch - 1).await?;
        space.lift(epoch).await?;
        space.writes("log", log).await?;
    }
    let agents: Vec<String> = space.requests(shared().await?)?.split_off(before.len());
    let patches = agents.iter().filter(|request| request.starts_with("patch") && request.contains("/pods/")).count();
    assert_eq!(patches, 3, "one request for each restart: {agents:#?}");
    assert!(!agents.iter().any(|request| request.starts_with("watch")), "the watch stays open: {agents:#?}");
    Ok(())
}

#[tokio::test]
async fn a_worker_that_fails_is_the_first_to_report_the_next_epoch() -> Result<()> {
    let space = Space::new("fails").await?;
    let _agent = space.supervise("echo $JOBSET_EPOCH >>log; [ $JOBSET_EPOCH = 3 ] || exit 1; exec sleep 1000", &[])?;
    for epoch in 1..=3 {
        space.lift(epoch).await?;
    }
    space.writes("log", "1\n2\n3\n").await
}

#[tokio::test]
async fn a_worker_that_ignores_sigterm_is_killed_after_its_grace() -> Result<()> {
    let space = Space::new("ignores").await?;
    let _agent = space.supervise(
        "trap 'echo asked >>log' TERM; echo $JOBSET_EPOCH >>log; while :; do sleep 0.1; done",
        &[("STOP_GRACE_SECONDS", "0.5")],
    )?;
    space.restarts("1\n", "1\nasked\n2\n").await
}

#[tokio::test]
async fn within_its_grace_a_worker_may_save_what_it_has() -> Result<()> {
    let space = Space::new("saves").await?;
    let _agent = space.supervise(
        "trap 'sleep 0.5; echo saved $JOBSET_EPOCH >>log; exit 0' TERM; echo on >>log; while :; do sleep 0.1; done",
        &[("STOP_GRACE_SECONDS", "30")],
    )?;
    space.restarts("on\n", "on\nsaved 1\non\n").await
}

/// A shell ends at once when it is asked to, and what it has started goes on with what it has to do.
#[tokio::test]
async fn so_may_the_rest_of_its_process_group_when_its_first_process_has_ended() -> Result<()> {
    let space = Space::new("saves-behind-a-shell").await?;
    let trains = "trap 'sleep 0.5; echo saved $JOBSET_EPOCH >>log; exit 0' TERM; echo on >>log; \
         while :; do sleep 0.1; done";
    std::fs::write(space.folder.path().join("trains.sh"), trains)?;
    let _agent = space.supervise("sh trains.sh | cat", &[("STOP_GRACE_SECONDS", "30")])?;
    space.restarts("on\n", "on\nsaved 1\non\n").await
}

#[tokio::test]
async fn a_worker_whose_words_nobody_reads_is_stopped_and_started_all_the_same() -> Result<()> {
    let space = Space::new("unread").await?;
    let _agent = space.unread("echo $JOBSET_EPOCH >>log; timeout 1 yes >&2; echo full >>log; exec sleep 1000")?;
    space.restarts("1\nfull\n", "1\nfull\n2\nfull\n").await
}

#[tokio::test]
async fn an_api_server_that_is_away_ends_nothing_and_the_failure_is_reported_when_it_is_back() -> Result<()> {
    let plane = plane().await?;
    let space = Space::of(&plane, "away", "InPlaceRestart").await?;
    let agent = space.supervise("trap 'exit 1' USR1; echo $JOBSET_EPOCH >>log; while :; do sleep 0.1; done", &[])?;
    space.lift(1).await?;
    space.writes("log", "1\n").await?;
    plane.stop_api_server().await?;
    agent.signal(Signal::USR1).await?;
    plane.start_api_server().await?;
    space.lift(2).await?;
    space.writes("log", "1\n2\n").await?;
    drop(agent);
    plane.stop().await
}
