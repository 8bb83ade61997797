//! The plugin's reports on JobSets that the controller reconciles.

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::events::RESTART;
use crate::fixture::{Space, expect, folder, in_place};

#[tokio::test]
async fn group_restart_each_step_is_reported() -> Result<()> {
    let space = Space::new("restart").await?;
    space.create(in_place("train", 2)).await?;
    let pods = space.pods_of("train", 2).await?;
    let [a, b] = &pods[..] else { unreachable!() };

    // The cluster has no scheduler, and no agent has reported.
    space.shows(&["status", "train"], &["closed, 0 of 2 Pods have reported epoch 1", "not reported"], 0).await?;
    let words = [
        "does not run (Starting)",
        "no scheduler has reported why",
        "waits at the barrier of epoch 1 for 2 of 2 Pods",
        &a.name_any(),
    ];
    space.shows(&["explain", "train"], &words, 1).await?;

    space.bind(&pods).await?;
    space.held(b, 0).await?;
    space.report(a, 1).await?;
    space.shows(&["explain", "train"], &["for 1 of 2 Pods", &format!("not reported yet: {}", b.name_any())], 1).await?;
    space.report(b, 1).await?;
    space.shows(&["status", "train"], &["lifted, the workers of epoch 1 may run"], 0).await?;
    for pod in &pods {
        space.runs(pod, 0).await?;
    }
    space
        .shows(&["status", "train"], &["Running", "lifted, the workers of epoch 1 may run", "1 of 1 ready"], 0)
        .await?;
    space.shows(&["explain", "train"], &["runs: 1 of 1 Jobs are ready."], 0).await?;
    space.shows(&["restarts", "train"], &["has not restarted"], 0).await?;

    // The controller sees the failure before the agent reports again.
    space.crash(a, 3, "loss is NaN").await?;
    space.shows(&["status", "train"], &["Restarting", "closed, 0 of 2 Pods have reported epoch 2"], 0).await?;
    space.held(a, 1).await?;
    space.report(a, 2).await?;
    let closed = "closed, 1 of 2 Pods have reported epoch 2";
    space.shows(&["status", "train"], &["Restarting", closed, "waiting", "restarting"], 0).await?;
    space.shows(&["explain", "train"], &["The group restarts.", "not restarted yet"], 1).await?;
    space.shows(&["restarts", "train"], &["has restarted once", "in progress"], 0).await?;
    space.held(b, 1).await?;
    space.report(b, 2).await?;
    space.shows(&["status", "train"], &["lifted, the workers of epoch 2 may run"], 0).await?;
    for pod in &pods {
        space.runs(pod, 1).await?;
    }
    space.shows(&["status", "train"], &["Running", "2 synced, 1 deprecated"], 0).await?;
    space.shows(&["restarts", "train", "-o", "yaml"], &["recovered:"], 0).await?;

    let restarts: Value = serde_json::from_str(&space.run(&["restarts", "train", "-o", "json"], 0).await?)?;
    assert_eq!((&restarts["groupRestarts"], &restarts["restartsCountTowardsMax"]), (&json!(1), &json!(1)));
    let restart = &restarts["restarts"][0];
    assert_eq!(restart["manner"], "InPlace", "{restarts}");
    assert!(
        restart["cause"].as_str().context("no cause")?.contains("exited with code 3 (Error): loss is NaN"),
        "{restart}"
    );
    assert!(restart["total"].as_f64().context("no total")? > 0.0, "{restart}");
    Ok(())
}

#[tokio::test]
async fn kubectl_runs_plugin_and_lists_all_namespaces() -> Result<()> {
    let space = Space::new("by-kubectl").await?;
    space.create(in_place("train", 1)).await?;
    space.pods_of("train", 1).await?;
    let path = format!("{}:{}", folder().display(), std::env::var("PATH")?);
    let mut command = std::process::Command::new(&space.kubectl);
    command.args(["jobset", "status", "--all-namespaces"]).env("PATH", path).env("KUBECONFIG", &space.kubeconfig);
    let text = expect(&command.output()?, 0)?;
    let line = text.lines().find(|line| line.starts_with("by-kubectl")).context("no line of the namespace")?;
    let words: Vec<_> = line.split_whitespace().take(5).collect();
    assert_eq!(words, ["by-kubectl", "train", "Starting", "0/1", "0"], "{text}");
    assert!(!text.contains('\u{1b}'), "no colours without a terminal");
    Ok(())
}

#[tokio::test]
async fn missing_jobset_or_cluster_has_exit_code_3() -> Result<()> {
    let space = Space::new("not-there").await?;
    let text = space.run(&["status", "nobody"], 3).await?;
    assert_eq!(
        text,
        "error: there is no JobSet nobody in namespace not-there; `kubectl jobset status -A` lists all JobSets\n"
    );
    assert_eq!(space.run(&["status"], 0).await?, "There is no JobSet in namespace not-there.\n");
    space.run(&["explain"], 2).await?;
    let text = space.run(&["status", "--context", "none"], 2).await?;
    assert!(text.starts_with("error: cannot use the kubeconfig: "), "{text}");

    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("config");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": "a", "user": {}}],
    });
    std::fs::write(&kubeconfig, config.to_string())?;
    let mut command = std::process::Command::new(crate::fixture::PROGRAM);
    let output = command.args(["status", "--kubeconfig"]).arg(&kubeconfig).output()?;
    let text = expect(&output, 3)?;
    assert!(text.starts_with("error: cannot list JobSets in namespace"), "{text}");
    Ok(())
}

/// The test writes the controller's Events, on a JobSet that no controller reconciles.
#[tokio::test]
async fn events_of_jobset_are_read_with_numbers() -> Result<()> {
    let space = Space::new("events").await?;
    let mut object = in_place("train", 1);
    object["spec"]["managedBy"] = json!("example.com/nobody");
    let jobset = space.create(object).await?;
    let status = json!({"status": {"groupRestarts": 2, "restartsCountTowardsMax": 1, "restarts": 0}});
    let patch = kube::api::Patch::Merge(status);
    space.jobsets().patch_status("train", &kube::api::PatchParams::default(), &patch).await?;
    let start = Timestamp::from_microsecond(Timestamp::now().as_microsecond())?;
    let uid = jobset.uid().context("no UID")?;
    for step in RESTART {
        space.event(("train", &uid), start, step).await?;
    }
    space.event(("train", "other"), start, ("Restarting", 0)).await?;
    let report: Value = serde_json::from_str(&space.run(&["restarts", "train", "-o", "json"], 0).await?)?;
    assert_eq!((&report["expired"], report["restarts"].as_array().map(Vec::len)), (&json!(1), Some(1)), "{report}");
    let restart = &report["restarts"][0];
    assert_eq!((&restart["number"], &restart["counted"], &restart["epoch"]), (&json!(2), &json!(false), &json!(2)));
    let phases: Vec<_> = restart["phases"]
        .as_array()
        .context("no phases")?
        .iter()
        .map(|phase| (&phase["name"], &phase["seconds"]))
        .collect();
    assert_eq!(
        phases,
        [(&json!("detect"), &json!(0.5)), (&json!("register"), &json!(1.5)), (&json!("lift"), &json!(1.5))]
    );
    let text = space.run(&["restarts", "train"], 0).await?;
    println!("{text}");
    assert!(text.contains("Not listed: 1 of them."), "{text}");
    let explained = space.run(&["explain", "train"], 1).await?;
    assert!(explained.contains("spec.managedBy is example.com/nobody"), "{explained}");
    Ok(())
}
