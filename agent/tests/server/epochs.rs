//! Epochs of a supervisor: when the worker runs, in which epoch, and with which requests to the API server.

use anyhow::Result;

use super::fixture::{TestNamespace, shared};

/// A worker that logs its epoch and runs until SIGTERM.
const RUNS: &str = "echo $JOBSET_EPOCH >>log; exec sleep 1000";

#[tokio::test]
async fn epoch_deprecated_restarts_the_worker_within_its_container() -> Result<()> {
    let space = TestNamespace::new("stopped").await?;
    let _agent = space.supervise(RUNS, &[])?;
    space.wait_for_report(1).await?;
    assert_eq!(space.file("log"), "", "the worker waits for its epoch");
    space.set_epochs(1, 0).await?;
    space.wait_for_file("log", "1\n").await?;
    let before = space.requests(shared().await?)?;
    for (epoch, log) in [(2, "1\n2\n"), (3, "1\n2\n3\n"), (4, "1\n2\n3\n4\n")] {
        space.set_epochs(epoch - 1, epoch - 1).await?;
        space.lift(epoch).await?;
        space.wait_for_file("log", log).await?;
    }
    let agents: Vec<String> = space.requests(shared().await?)?.split_off(before.len());
    let patches = agents.iter().filter(|request| request.starts_with("patch") && request.contains("/pods/")).count();
    assert_eq!(patches, 3, "one request for each restart: {agents:#?}");
    assert!(!agents.iter().any(|request| request.starts_with("watch")), "the watch stays open: {agents:#?}");
    Ok(())
}

#[tokio::test]
async fn worker_ignoring_sigterm_is_killed_after_its_grace() -> Result<()> {
    let space = TestNamespace::new("ignores").await?;
    let _agent = space.supervise(
        "trap 'echo terminated >>log' TERM; echo $JOBSET_EPOCH >>log; while :; do sleep 0.1; done",
        &[("STOP_GRACE_SECONDS", "0.5")],
    )?;
    space.assert_restart("1\n", "1\nterminated\n2\n").await
}

#[tokio::test]
async fn worker_saves_its_state_within_its_grace() -> Result<()> {
    let space = TestNamespace::new("saves").await?;
    let _agent = space.supervise(
        "trap 'sleep 0.5; echo saved $JOBSET_EPOCH >>log; exit 0' TERM; echo on >>log; while :; do sleep 0.1; done",
        &[("STOP_GRACE_SECONDS", "30")],
    )?;
    space.assert_restart("on\n", "on\nsaved 1\non\n").await
}

/// A shell ends at once on SIGTERM, while the processes that it started continue.
#[tokio::test]
async fn process_group_saves_state_after_main_process_ended() -> Result<()> {
    let space = TestNamespace::new("saves-behind-a-shell").await?;
    let trains = "trap 'sleep 0.5; echo saved $JOBSET_EPOCH >>log; exit 0' TERM; echo on >>log; \
         while :; do sleep 0.1; done";
    std::fs::write(space.folder.path().join("trains.sh"), trains)?;
    let _agent = space.supervise("sh trains.sh | cat", &[("STOP_GRACE_SECONDS", "30")])?;
    space.assert_restart("on\n", "on\nsaved 1\non\n").await
}

#[tokio::test]
async fn worker_with_full_standard_error_is_restarted() -> Result<()> {
    let space = TestNamespace::new("unread").await?;
    let _agent =
        space.supervise_unread("echo $JOBSET_EPOCH >>log; timeout 1 yes >&2; echo full >>log; exec sleep 1000")?;
    space.assert_restart("1\nfull\n", "1\nfull\n2\nfull\n").await
}
