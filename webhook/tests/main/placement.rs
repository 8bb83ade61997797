//! Exclusive placement, as a real API server carries out what admission says. The bugs of the Go JobSet that a test keeps
//! away are named with it.

use anyhow::Result;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::api_server::refusal;
use crate::exclusive::Space;

#[tokio::test]
async fn leader_gets_affinity_and_followers_its_domain() -> Result<()> {
    let (space, job, leader) = Space::with_leader("placed").await?;
    let affinity = serde_json::to_value(&leader.spec.as_ref().unwrap().affinity)?;
    let term = |kind: &str| affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"][0].clone();
    let (together, apart) = (term("podAffinity"), term("podAntiAffinity"));
    assert_eq!((&together["topologyKey"], &apart["topologyKey"]), (&json!(space.rack()), &json!(space.rack())));
    let own = leader.labels()["jobset.sigs.k8s.io/job-key"].clone();
    assert_eq!(together["labelSelector"]["matchExpressions"][0]["values"], json!([own]));
    assert_eq!(apart["labelSelector"]["matchExpressions"][1]["values"], json!([own]));
    assert_eq!(leader.spec.as_ref().unwrap().node_selector, None);

    space.node("placed-1", Some("r1")).await?;
    space.bind(&leader, "placed-1").await?;
    space.sends(&job, "r1").await
}

/// js#1187, js#1188: the message did not say that the leader is pending.
#[tokio::test]
async fn follower_of_pending_leader_is_refused_with_scheduler_message() -> Result<()> {
    let space = Space::new("pending").await?;
    let job = space.job("train-w-0").await?;
    let status = space.refuses(&job, "LeaderMissing", "there is no such Pod yet").await?;
    let rack = space.rack();
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"), "{status:?}");
    assert_eq!(
        status.message,
        format!(
            "admission webhook \"mpod.kb.io\" denied the request: waits for the leader of Job train-w-0 (completion \
             index 0) to be placed by {rack}: there is no such Pod yet"
        )
    );
    let leader = space.leader(&job).await?;
    let name = leader.name_any();
    space.refuses(&job, "LeaderPending", &format!("Pod {name} is pending; the scheduler has not said why")).await?;
    let why = "0/4 nodes are available: 4 Insufficient example.com/tpu.";
    let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why });
    space.status(&leader, json!({ "conditions": [condition] })).await?;
    space.refuses(&job, "LeaderPending", &format!("Pod {name} is pending: {why}")).await?;
    Ok(())
}

/// js#1021: followers went to the domain of a leader that was terminating.
#[tokio::test]
async fn terminating_leader_yields_to_its_successor() -> Result<()> {
    let (space, job, leader) = Space::with_leader("terminating").await?;
    space.node("terminating-1", Some("r1")).await?;
    space.node("terminating-2", Some("r2")).await?;
    space.bind(&leader, "terminating-1").await?;
    // Bound, it stays until a kubelet has ended it.
    space.delete(&leader).await?;
    let text = format!("Pod {} is terminating", leader.name_any());
    space.refuses(&job, "LeaderTerminating", &text).await?;
    let successor = space.leader(&job).await?;
    space.refuses(&job, "LeaderPending", &successor.name_any()).await?;
    space.bind(&successor, "terminating-2").await?;
    space.sends(&job, "r2").await?;
    assert!(space.pods().get_opt(&leader.name_any()).await?.is_some(), "the old leader is still there");
    Ok(())
}

/// js#1276: a leader that had failed was counted beside its successor, and followers were refused for ever.
#[tokio::test]
async fn failed_leader_beside_successor_does_not_count() -> Result<()> {
    let (space, job, leader) = Space::with_leader("failed").await?;
    space.node("failed-1", Some("r1")).await?;
    space.node("failed-2", Some("r2")).await?;
    space.bind(&leader, "failed-1").await?;
    space.status(&leader, json!({ "phase": "Failed" })).await?;
    space.refuses(&job, "LeaderFailed", &format!("Pod {} has failed", leader.name_any())).await?;
    let successor = space.leader(&job).await?;
    space.bind(&successor, "failed-2").await?;
    space.sends(&job, "r2").await?;
    // Its index is done, nobody succeeds it: those that still run are not left without replacements.
    space.status(&successor, json!({ "phase": "Succeeded" })).await?;
    space.sends(&job, "r2").await
}

/// js#433: the leader of the Job's predecessor of the same name was followed.
#[tokio::test]
async fn leader_of_earlier_job_is_not_followed() -> Result<()> {
    let space = Space::new("recreated").await?;
    let before = space.job("train-w-0").await?;
    let leader = space.leader(&before).await?;
    space.node("recreated-1", Some("r1")).await?;
    space.bind(&leader, "recreated-1").await?;
    space.sends(&before, "r1").await?;
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(space.client.clone(), space.namespace);
    jobs.delete("train-w-0", &DeleteParams::background()).await?;
    let job = space.job("train-w-0").await?;
    assert_eq!(job.name_any(), before.name_any());
    space.refuses(&job, "LeaderMissing", "there is no such Pod yet").await?;
    let found = space.pods().get_opt(&leader.name_any()).await?;
    assert!(found.is_some(), "the old leader is still there, and bound");
    Ok(())
}

/// js#1089: without a node, followers were sent to an empty domain.
#[tokio::test]
async fn leader_without_node_or_domain_is_not_followed() -> Result<()> {
    let (space, job, leader) = Space::with_leader("node-gone").await?;
    space.bind(&leader, "node-gone-1").await?;
    let text = format!("node node-gone-1 of Pod {} does not exist", leader.name_any());
    space.refuses(&job, "LeaderNodeMissing", &text).await?;
    space.node("node-gone-1", None).await?;
    let text = format!("has no label {}; label it", space.rack());
    space.refuses(&job, "LeaderNodeWithoutDomain", &text).await?;
    let label = Patch::Merge(json!({ "metadata": { "labels": { space.rack(): "r7" } } }));
    space.nodes().patch("node-gone-1", &PatchParams::default(), &label).await?;
    space.sends(&job, "r7").await
}

#[tokio::test]
async fn several_leaders_are_named_and_none_is_followed() -> Result<()> {
    let space = Space::new("several").await?;
    let job = space.job("train-w-0").await?;
    let (one, other) = (space.leader(&job).await?, space.leader(&job).await?);
    space.node("several-1", Some("r1")).await?;
    space.bind(&one, "several-1").await?;
    let status = space.refuses(&job, "LeaderAmbiguous", "there are several: Pods").await?;
    assert!(status.message.contains(&one.name_any()) && status.message.contains(&other.name_any()));
    space.delete(&other).await?;
    space.sends(&job, "r1").await
}

/// js#1284: Jobs that are not Indexed have no leader.
#[tokio::test]
async fn pod_without_index_or_job_is_refused() -> Result<()> {
    let space = Space::new("no-index").await?;
    let job = space.job("train-w-0").await?;
    let mut pod = space.pod(&job, 1);
    pod["metadata"]["annotations"].as_object_mut().unwrap().remove("batch.kubernetes.io/job-completion-index");
    let status = refusal(space.create(&pod).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert!(status.message.contains("completionMode must be Indexed"), "{}", status.message);
    let mut pod = space.pod(&job, 1);
    pod["metadata"]["ownerReferences"] = json!([]);
    let status = refusal(space.create(&pod).await);
    assert_eq!(status.details.unwrap().causes[0].field, "metadata.ownerReferences");
    Ok(())
}

/// js#1077: Pods excluded each other across priorities, and none could preempt.
#[tokio::test]
async fn leaders_exclude_others_of_the_priority_that_kubernetes_resolved() -> Result<()> {
    let space = Space::new("priority").await?;
    for (class, value, label) in [("placement-high", 7, "7"), ("placement-low", -10, "n10")] {
        let class_object = json!({ "metadata": { "name": class }, "value": value });
        let classes: Api<k8s_openapi::api::scheduling::v1::PriorityClass> = Api::all(space.client.clone());
        classes.create(&PostParams::default(), &serde_json::from_value(class_object)?).await?;
        let job = space.job(&format!("train-{class}")).await?;
        let mut pod = space.pod(&job, 0);
        pod["spec"]["priorityClassName"] = json!(class);
        let leader = space.create(&pod).await?;
        assert_eq!(leader.labels()["jobset.sigs.k8s.io/priority"], label, "its own, which was 0");
        let affinity: Value = serde_json::to_value(leader.spec.unwrap().affinity)?;
        let apart = &affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
        let wanted = json!({ "key": "jobset.sigs.k8s.io/priority", "operator": "In", "values": [label] });
        assert_eq!(apart["labelSelector"]["matchExpressions"][2], wanted);
    }
    Ok(())
}

#[tokio::test]
async fn a_dry_run_says_the_same_and_leaves_nothing() -> Result<()> {
    let space = Space::new("dry-run").await?;
    let job = space.job("train-w-0").await?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let shown = space.submit(&space.pod(&job, 0), &dry_run).await?;
    assert!(shown.spec.unwrap().affinity.unwrap().pod_anti_affinity.is_some());
    let status = refusal(space.submit(&space.pod(&job, 1), &dry_run).await);
    assert!(status.message.contains("there is no such Pod yet"), "nor does admission know it: {}", status.message);
    assert_eq!(space.pods().list(&ListParams::default()).await?.items.len(), 0);
    Ok(())
}
