//! `wait` on JobSets that the controller reconciles.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, Stdio};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::fixture::{Space, in_place};

struct Waiting {
    child: Child,
    errors: BufReader<ChildStderr>,
    first: String,
}

impl Waiting {
    async fn start(space: &Space, args: &[&str]) -> Result<Self> {
        let mut command = space.plugin(&[&["wait", "train"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        spawn_blocking(move || {
            let mut errors = BufReader::new(child.stderr.take().context("no standard error")?);
            let mut first = String::new();
            errors.read_line(&mut first)?;
            Ok(Self { child, errors, first })
        })
        .await?
    }

    /// Waits for its end. Returns standard output and standard error.
    async fn ends(mut self, code: i32) -> Result<(String, String)> {
        spawn_blocking(move || {
            let (mut out, mut errors) = (String::new(), self.first);
            self.errors.read_to_string(&mut errors)?;
            self.child.stdout.take().context("no output")?.read_to_string(&mut out)?;
            println!("{out}{errors}");
            assert_eq!(self.child.wait()?.code(), Some(code), "{out}{errors}");
            Ok((out, errors))
        })
        .await?
    }
}

/// All Pods report this epoch and run.
async fn run(space: &Space, pods: &[Pod], epoch: i32) -> Result<()> {
    for pod in pods {
        space.held(pod, epoch - 1).await?;
        space.report(pod, epoch).await?;
    }
    let lifted = format!("lifted, the workers of epoch {epoch} may run");
    space.shows(&["status", "train"], &[&lifted], 0).await?;
    for pod in pods {
        space.runs(pod, epoch - 1).await?;
    }
    Ok(())
}

#[tokio::test]
async fn wait_ends_when_workers_run_and_have_restarted() -> Result<()> {
    let space = Space::new("wait").await?;
    space.create(in_place("train", 2)).await?;
    let pods = space.pods_of("train", 2).await?;
    let text = space.run(&["wait", "train", "--for", "running", "--timeout", "1s"], 4).await?;
    assert!(text.contains("wait/train does not run in time: it is Starting ("), "{text}");

    let waiting = Waiting::start(&space, &["--for", "running", "-o", "json"]).await?;
    let first = "wait/train Starting: 0 of 2 workers run, epoch 0, barrier closed (0 of 2 Pods have reported epoch 1)";
    assert!(waiting.first.contains(first), "{}", waiting.first);
    for pod in &pods {
        space.node(&format!("wait-{}", pod.metadata.name.as_deref().unwrap_or_default()), &json!({})).await?;
        space.bind_to(pod, &format!("wait-{}", pod.metadata.name.as_deref().unwrap_or_default())).await?;
    }
    run(&space, &pods, 1).await?;
    let (out, errors) = waiting.ends(0).await?;
    let report: Value = serde_json::from_str(&out)?;
    assert_eq!(
        (&report["for"], &report["outcome"], &report["state"]),
        (&json!("running"), &json!("Reached"), &json!("Running"))
    );
    assert!(errors.contains("runs: all 2 workers run in epoch 1"), "{errors}");
    // It is so already.
    assert!(space.run(&["wait", "jobset/train", "--for=running"], 0).await?.contains("runs: all 2 workers"));

    let waiting = Waiting::start(&space, &["--for", "restarted"]).await?;
    space.crash(&pods[0], 3, "loss is NaN").await?;
    space.shows(&["status", "train"], &["Restarting"], 0).await?;
    // The restart that is under way counts for this one, too.
    let late = Waiting::start(&space, &["--for", "restarted", "--timeout", "1m"]).await?;
    assert!(late.first.contains("Restarting: 0 of 2 workers run, epoch 1, barrier closed"), "{}", late.first);
    run(&space, &pods, 2).await?;
    for waiting in [waiting, late] {
        let (out, errors) = waiting.ends(0).await?;
        assert!(out.is_empty() && errors.contains("runs again: all 2 workers run in epoch 2"), "{out}{errors}");
    }

    // The next restart has not begun.
    let text = space.run(&["wait", "train", "--for", "restarted", "--timeout", "1s"], 4).await?;
    assert!(text.contains("has not restarted in time: it is Running"), "{text}");
    let waiting = Waiting::start(&space, &["--for", "finished"]).await?;
    space.jobsets().delete("train", &DeleteParams::default()).await?;
    let (_, errors) = waiting.ends(1).await?;
    assert!(errors.contains("was deleted") || errors.contains("is being deleted"), "{errors}");
    space.run(&["wait", "train", "--for", "finished"], 3).await?;
    Ok(())
}
