//! Pods that are lost: the Job controller replaces each alone, and the others restart in place. What cannot come back in
//! place is recreated.

use anyhow::{Context, Result};
use jobset_api::conditions;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, EvictParams};
use serde_json::json;

use crate::fixture::Space;
use crate::outcome::{condition, restarts};
use crate::workload::restarting;

#[tokio::test]
async fn lost_pod_restarts_others_before_successor_reports() -> Result<()> {
    let space = Space::new("lost-pod").await?;
    let pods = space.start_in_place(restarting("train", 3, 9), 3).await?;
    space.lose(&pods[1]).await?;
    space.in_epoch("train", (1, 1, 1, 1)).await?;
    let successor = space.successor("train", &pods[1]).await?;
    space.report(&successor, "2").await?;
    let others = [pods[0].clone(), pods[2].clone()];
    space.restart(&others, 2).await?;
    space.lift("train", &[&others[..], &[successor]].concat(), 2).await?;
    let status = space.in_epoch("train", (2, 1, 1, 1)).await?;
    assert_eq!(status.restarts, 0);
    let now = space.pods("train", 3, "0").await?;
    assert!(others.iter().all(|pod| now.iter().any(|other| other.uid() == pod.uid())), "they are the same");
    Ok(())
}

#[tokio::test]
async fn delay_does_not_grow_with_number_of_lost_pods() -> Result<()> {
    let space = Space::new("lost-pods").await?;
    let pods = space.start_in_place(restarting("train", 5, 9), 5).await?;
    let spec = space.job("train-workers-0").await?.spec.context("no spec")?;
    assert_eq!((spec.backoff_limit, spec.backoff_limit_per_index), (Some(i32::MAX), Some(i32::MAX)));
    for pod in &pods {
        space.fail(pod, 42).await?;
    }
    // Counted for the whole Job, the fifth failure would cost 160 s, which is more than this waits.
    let is_new = |pod: &Pod| pods.iter().all(|before| before.uid() != pod.uid());
    space.pods_where("train", "all new", |now| now.len() == 5 && now.iter().all(is_new)).await?;
    assert_eq!(restarts(&space.status("train").await?), (0, 1, 1));
    Ok(())
}

#[tokio::test]
async fn exit_0_of_deleted_pod_is_loss_and_recreates() -> Result<()> {
    let space = Space::new("lost-success").await?;
    space.create(restarting("train", 2, 1)).await?;
    let pods = space.pods("train", 2, "0").await?;
    space.bind(&pods[0], json!({"metadata": {"name": "node-of-the-drained"}})).await?;
    space.lift("train", &pods, 1).await?;
    space.all_pods().delete(&pods[0].name_any(), &DeleteParams::default()).await?;
    space.succeed(&pods[0]).await?;
    let status = space.restarted("train", (1, 1, 1)).await?;
    let restarting = condition(&status, conditions::RESTARTING).context("no condition")?;
    let wanted = format!(
        "the worker of Pod {} on node node-of-the-drained exited 0 because the Pod was deleted: its work is lost",
        pods[0].name_any()
    );
    assert!(restarting.message.ends_with(&wanted), "{}", restarting.message);
    space.release(&pods[0]).await?;
    space.pods("train", 2, "1").await?;
    Ok(())
}

#[tokio::test]
async fn eviction_is_excluded_by_rule_and_bug_is_counted() -> Result<()> {
    let space = Space::new("evicted").await?;
    let mut jobset = restarting("train", 2, 1);
    // Of what happens in place, it is for disruptions alone.
    jobset["spec"]["failurePolicy"]["rules"] =
        json!([{"action": "RestartJobSetAndIgnoreMaxRestarts", "name": "maintenance"}]);
    let pods = space.start_in_place(jobset, 2).await?;
    space.all_pods().evict(&pods[0].name_any(), &EvictParams::default()).await?;
    space.fail(&pods[0], 143).await?;
    space.in_epoch("train", (1, 1, 0, 1)).await?;
    let note = space.note("Restarting", "in place, from epoch 1 to 2: ").await?;
    assert!(note.contains(&format!("Pod {} ", pods[0].name_any())), "{note}");
    assert!(note.contains("disrupted (EvictionByEvictionAPI: Eviction API: evicting)"), "{note}");
    assert!(note.contains("exited with code 143") && note.ends_with("; not counted by rule maintenance"), "{note}");

    let pods = [space.successor("train", &pods[0]).await?, pods[1].clone()];
    space.restart(&pods[1..], 2).await?;
    space.lift("train", &pods, 2).await?;
    space.crash(&pods[1], 1).await?;
    space.in_epoch("train", (2, 2, 1, 2)).await?;
    Ok(())
}
