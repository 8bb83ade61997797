//! The signals of a supervised worker, which starts as it would without the agent.

use std::process::Output;

use anyhow::Result;
use tokio::process::Command;

use super::fake::{END, FakeApiServer, FakeResponse, STATE};

/// The agent blocks SIGTTOU and ignores SIGPIPE for itself.
#[tokio::test]
async fn worker_has_signal_masks_as_without_agent() -> Result<()> {
    let bypassed = STATE.replace("InPlaceRestart", "Recreate");
    let fake = FakeApiServer::start(move |_| FakeResponse::lines(&[&bypassed, END], true)).await?;
    // A shell that started these tests in the background, or nohup, has these ignored. The agent handles them, so its worker has not.
    let worker = ["env", "--default-signal=HUP,INT,QUIT", "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"];
    let alone = Command::new(worker[0]).args(&worker[1..]).output().await?;
    let supervised = fake.command("{token: secret}", &worker)?.kill_on_drop(true).output().await?;
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text(&alone).starts_with("SigBlk:\t0000000000000000\n"), "{}", text(&alone));
    assert_eq!((text(&supervised), supervised.status.code()), (text(&alone), Some(0)));
    Ok(())
}
