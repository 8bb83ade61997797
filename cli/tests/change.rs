//! `restart`, `suspend` and `resume` of JobSets that the controller reconciles; `logs` where no kubelet keeps any.

use anyhow::{Context, Result};
use jobset_harness::wait;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::fixture::{LIMIT, Space, expect, in_place};

#[tokio::test]
async fn restart_suspend_and_resume_wait_for_controller() -> Result<()> {
    let space = Space::new("change").await?;
    space.create(in_place("train", 1)).await?;
    let pods = space.pods_of("train", 1).await?;
    let pod = pods[0].name_any();
    let text = space.run(&["restart", "train"], 1).await?;
    assert!(text.contains("change/train is not restarted (NotStarted): no worker has started yet"), "{text}");
    space.report(&pods[0], 1).await?;
    space.node("change-1", &json!({})).await?;
    space.bind_to(&pods[0], "change-1").await?;
    space.runs(&pods[0], 0).await?;
    space.shows(&["status", "train"], &["lifted, the workers of epoch 1 may run", "1 of 1 ready"], 0).await?;

    let text = space.run(&["restart", "jobset/train", "--reason", "hangs", "--pod", &pod, "-o", "json"], 0).await?;
    // Progress on standard error follows.
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let report = values.next().context("no report")??;
    assert_eq!((&report["outcome"], &report["restart"]), (&json!("Done"), &json!(1)));
    let text = space.run(&["restarts", "train"], 0).await?;
    assert!(text.contains("restart requested: hangs (by ") && text.contains(&format!("Pod {pod}")), "{text}");
    let text = space.run(&["restart", "train", "--uncounted"], 1).await?;
    assert!(text.contains("is not restarted (AlreadyRestarting)"), "{text}");
    let text = space.run(&["restart", "train", "--pod", "train-workers-0-0-gone"], 1).await?;
    assert!(text.contains("has no Pod train-workers-0-0-gone"), "{text}");

    let text = space.run(&["suspend", "train", "--timeout", "1m"], 0).await?;
    assert!(text.contains("change/train is suspended"), "{text}");
    let text = space.run(&["restart", "train"], 1).await?;
    assert!(text.contains("is suspended, and starts again when it is resumed"), "{text}");
    let text = space.run(&["resume", "train", "--timeout", "1m"], 0).await?;
    assert!(text.contains("change/train is resumed"), "{text}");
    let text = space.run(&["--as", "nobody", "suspend", "train"], 3).await?;
    assert!(text.contains("\"nobody\" cannot get resource \"jobsets\""), "{text}");
    Ok(())
}

/// No controller runs, so each of these changes would be waited for until its time limit.
#[tokio::test]
async fn change_that_nobody_carries_out_ends_at_once() -> Result<()> {
    let space = Space::without_controllers("nobody").await?;
    let mut foreign = in_place("foreign", 1);
    foreign["spec"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
    space.create(foreign).await?;
    for command in ["restart", "suspend", "resume"] {
        let text = space.run(&[command, "foreign"], 1).await?;
        assert!(text.contains(&format!("(spec.managedBy): {command} it where it runs")), "{text}");
    }

    space.create(in_place("train", 1)).await?;
    let mut command = space.plugin(&["suspend", "train", "--timeout", "10m"]);
    let ended = tokio::task::spawn_blocking(move || command.output());
    let is_asked = || async { Ok(space.jobsets().get("train").await?.spec.is_suspended().then_some(())) };
    wait::until(LIMIT, "spec.suspend of train", is_asked).await?;
    space.jobsets().delete("train", &DeleteParams::default()).await?;
    let again = || async { Ok(space.create(in_place("train", 1)).await.ok()) };
    wait::until(LIMIT, "another JobSet train", again).await?;
    let text = expect(&ended.await??, 1)?;
    assert!(text.contains("nobody/train was deleted meanwhile"), "{text}");
    Ok(())
}

#[tokio::test]
async fn logs_without_containers_say_why() -> Result<()> {
    let space = Space::new("no-logs").await?;
    space.create(in_place("train", 1)).await?;
    space.pods_of("train", 1).await?;
    let text = space.run(&["logs", "train", "--epoch", "2"], 2).await?;
    assert!(text.contains("JobSet no-logs/train has not begun epoch 2: the newest is 0"), "{text}");
    let text = space.run(&["logs", "train"], 1).await?;
    assert!(text.contains("has no node, and no log") && text.contains("there are no logs"), "{text}");
    space.run(&["logs", "train", "-l", "no=such"], 1).await?;
    let text = space.run(&["status", "-l", "team=vision"], 0).await?;
    assert!(!text.contains("train"), "{text}");
    space.run(&["logs", "none"], 3).await?;
    Ok(())
}
