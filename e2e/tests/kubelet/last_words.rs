//! How often the true exit code and the termination message of the worker that failed first are seen. The kubelet erases
//! both when it restarts the Pod in place: for a moment they stand in the Pod's status, if that is written in between.

use anyhow::{Context, Result};
use futures::future::try_join_all;
use jobset_api::conditions;
use jobset_harness::group::LIMIT;
use jobset_harness::wait;
use jobset_harness::workload::STORY_1;

use super::shared::start;

/// Groups that fail side by side.
const GROUPS: usize = 5;
/// Failures of each.
const FAILURES: u8 = 10;

/// What the condition said about the failure with this code and word.
fn judge(message: &str, code: u8, word: &str) -> Result<bool> {
    if message.contains("exit code unknown") {
        return Ok(false);
    }
    let wanted = format!("container worker exited with code {code} (Error): {word}");
    anyhow::ensure!(message.contains(&wanted), "not what happened, {wanted:?}: {message:?}");
    Ok(true)
}

async fn fail_again_and_again(number: usize) -> Result<usize> {
    let namespace = format!("last-words-{number}");
    let (group, workers) = start(&namespace, STORY_1, |workload| workload.of_shape(1, 2)).await?;
    let worker = workers.values().next().context("no worker")?;
    let mut seen = 0;
    for failure in 0..FAILURES {
        let (code, word) = (10 + failure, format!("word-{number}-{failure}"));
        group.exit_saying(worker, code, &word).await?;
        group.runs_in_epoch(i32::from(failure) + 2).await?;
        let status = group.status().await?;
        let restarting = status.conditions.iter().find(|condition| condition.type_ == conditions::RESTARTING);
        // Once all are ready, the condition is false and says so; the event keeps the words.
        let epoch = format!("from epoch {} to", failure + 1);
        let event = &wait::until(LIMIT, format!("the event {epoch:?} of {namespace}"), || async {
            Ok(group.events("Restarting").await?.into_iter().find(|note| note.contains(&epoch)))
        })
        .await?;
        anyhow::ensure!(event.contains(&worker.pod) && event.contains(&worker.node), "{event}");
        anyhow::ensure!(restarting.is_some(), "no condition");
        seen += usize::from(judge(event, code, &word)?);
    }
    Ok(seen)
}

#[tokio::test]
async fn event_of_failure_names_true_exit_code_or_none() -> Result<()> {
    let seen: usize = try_join_all((0..GROUPS).map(fail_again_and_again)).await?.into_iter().sum();
    let all = GROUPS * usize::from(FAILURES);
    println!("e2e: true exit code and last words seen in {seen} of {all} failures");
    // How often is the kubelet's doing. Never would be ours.
    assert!(seen > 0, "the true exit code was never seen");
    Ok(())
}
