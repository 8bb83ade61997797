//! `kubectl jobset logs`: of which Pod and epoch each line is, and what is left of an epoch that is over.

use anyhow::{Context, Result};
use jobset_harness::workload::{STORY_1, SUPERVISED};
use rstest::rstest;

use super::shared::{installed, run_kubectl_jobset, start};

/// The last words of the worker that fails: one word, as an order has.
const WORDS: &str = "loss-is-NaN";

#[rstest]
#[case::sidecar("logs-sidecar", STORY_1, false)]
#[case::supervisor("logs-supervisor", SUPERVISED, true)]
#[tokio::test]
async fn logs_have_pod_and_epoch_of_each_line(
    #[case] namespace: &str,
    #[case] manifest: &str,
    #[case] keeps_earlier_epochs: bool,
) -> Result<()> {
    let (group, workers) = start(namespace, manifest, |workload| workload.of_shape(1, 2)).await?;
    let fails = workers.values().next().context("no worker")?;
    group.exit_saying(fails, 3, WORDS).await?;
    group.runs_in_epoch(2).await?;
    let logs = async |options: &[&str]| {
        let command = [&["logs", group.name.as_str(), "--namespace", namespace], options].concat();
        run_kubectl_jobset(installed().await?, &command).await
    };

    let (text, code) = logs(&["--epoch", "2"]).await?;
    assert_eq!(code, Some(0), "{text}");
    for worker in workers.values() {
        assert!(text.contains(&format!("[{} epoch 2] ", worker.pod)), "{text}");
    }
    assert!(!text.contains("epoch 1]") && !text.contains(WORDS), "{text}");

    let (text, _) = logs(&["--epoch", "1", "--failed"]).await?;
    let line = format!("[{} epoch 1] {WORDS}", fails.pod);
    assert_eq!(text.contains(&line), keeps_earlier_epochs, "{text}");
    assert!(workers.values().all(|worker| worker == fails || !text.contains(&worker.pod)), "only the failed: {text}");
    // Beside a sidecar, the kubelet has erased the log with its container.
    assert!(keeps_earlier_epochs || text.contains(&fails.pod), "the Pod without a log is named: {text}");
    Ok(())
}
