//! How often the true exit code and the last words of the worker that failed first are observed.
//!
//! Beside a sidecar, the kubelet erases both when it restarts the Pod in place: for a moment they are in the Pod's status, if
//! that is written in between. A supervisor reports them itself.

use anyhow::{Context, Result};
use futures::future::try_join_all;
use jobset_api::conditions;
use jobset_harness::group::LIMIT;
use jobset_harness::wait;
use jobset_harness::workload::{RECREATE, STORY_1, SUPERVISED};
use rstest::rstest;

use super::shared::{apply, start};

const GROUPS: usize = 5;
const FAILURES: u8 = 10;

/// What the condition said about the failure with this code and word.
fn judge(message: &str, code: u8, word: &str) -> Result<bool> {
    if message.contains("exit code unknown") {
        return Ok(false);
    }
    let code = format!("exited with code {code}");
    anyhow::ensure!(
        message.contains(&code) && message.contains(word),
        "not what happened, {code}, {word}: {message:?}"
    );
    Ok(true)
}

async fn fail_again_and_again(shape: &str, manifest: &str, number: usize) -> Result<usize> {
    let namespace = format!("last-words-{shape}-{number}");
    let (group, workers) = start(&namespace, manifest, |workload| workload.of_shape(1, 2)).await?;
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

#[rstest]
#[case::sidecar("sidecar", STORY_1)]
#[case::supervisor("supervisor", SUPERVISED)]
#[tokio::test]
async fn event_of_failure_names_true_exit_code_or_none(#[case] shape: &str, #[case] manifest: &str) -> Result<()> {
    let groups = (0..GROUPS).map(|number| fail_again_and_again(shape, manifest, number));
    let seen: usize = try_join_all(groups).await?.into_iter().sum();
    let all = GROUPS * usize::from(FAILURES);
    println!("e2e: {shape}: true exit code and last words seen in {seen} of {all} failures");
    // How often beside a sidecar is the kubelet's doing. Never would be ours.
    let least = if shape == "supervisor" { all } else { 1 };
    assert!(seen >= least, "{seen} of {all}");
    Ok(())
}

/// Nobody has set `terminationMessagePolicy`, and the worker writes to its log alone.
#[tokio::test]
async fn recreated_group_names_pod_node_code_and_last_words() -> Result<()> {
    let group = apply("last-words-recreate", RECREATE, |workload| {
        workload.of_shape(1, 1).with_max_restarts(0).with_env("EXIT_AT_START", "7:loss is NaN")
    })
    .await?;
    let status = group.finished().await?;
    let failed = status.conditions.iter().find(|it| it.type_ == conditions::FAILED).context("it has not failed")?;
    for words in ["Pod recreate-workers-0-0-", " on node ", "exited with code 7", "loss is NaN"] {
        assert!(failed.message.contains(words), "no {words:?}: {}", failed.message);
    }
    Ok(())
}
