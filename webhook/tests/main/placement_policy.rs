//! Which Pods cost a call to admission, and what the API server proves of the others without one.

use anyhow::Result;
use jobset_harness::wait::{self, Check};
use serde_json::{Value, json};

use crate::api_server::refusal;
use crate::cluster::{LIMIT, Plane};
use crate::exclusive::Space;

fn annotations(pod: &mut Value) -> &mut serde_json::Map<String, Value> {
    pod["metadata"]["annotations"].as_object_mut().unwrap()
}

/// users.md item 6: without a webhook there were no Pods of JobSets at all.
#[tokio::test]
async fn absent_service_blocks_exclusive_pods_alone() -> Result<()> {
    let space = Space::alone(Plane::start().await?, "away").await?;
    let job = space.job("train-w-0").await?;
    let replica = space.plane.admission().await?;
    space.plane.check_placement().await?;
    wait::until(LIMIT, "a leader", async || Ok(space.leader(&job).await.map(Some)?)).await?;
    replica.stop().await?;

    let exclusive = space.pod(&job, 0);
    let status = refusal(space.create(&exclusive).await);
    assert!(status.message.contains("failed calling webhook \"mpod.kb.io\""), "it is called: {}", status.message);
    let mut of_jobset = exclusive.clone();
    annotations(&mut of_jobset).remove("alpha.jobset.sigs.k8s.io/exclusive-topology");
    let mut by_selector = exclusive.clone();
    annotations(&mut by_selector).insert("alpha.jobset.sigs.k8s.io/node-selector".to_owned(), json!("true"));
    let mut plain = exclusive.clone();
    plain["metadata"] = json!({ "generateName": "plain-" });
    let mut annotated_alone = exclusive.clone();
    annotated_alone["metadata"]["labels"] = json!({ "a": "b" });
    for (what, pod) in
        [("of a JobSet", of_jobset), ("by selector", by_selector), ("plain", plain), ("of no JobSet", annotated_alone)]
    {
        for index in [0, 1] {
            let mut pod = pod.clone();
            if pod["metadata"]["annotations"].is_object() {
                annotations(&mut pod)
                    .insert("batch.kubernetes.io/job-completion-index".to_owned(), json!(index.to_string()));
            }
            let created = space.create(&pod).await;
            assert!(created.is_ok(), "{what}, {index}: {created:?}");
        }
    }
    // Neither does anything else about a Pod that asks for it, once it is there.
    let leaders = space.pods().list(&kube::api::ListParams::default()).await?.items;
    let leader = leaders.iter().find(|pod| pod.spec.as_ref().is_some_and(|spec| spec.affinity.is_some())).unwrap();
    space.node("away-1", Some("r1")).await?;
    space.bind(leader, "away-1").await?;
    space.status(leader, json!({ "phase": "Running" })).await?;
    space.delete(leader).await
}

#[tokio::test]
async fn pod_not_placed_as_asked_is_refused_by_policy() -> Result<()> {
    let space = Space::alone(Plane::start().await?, "policy").await?;
    let job = space.job("train-w-0").await?;
    // What the webhook makes of a leader and a follower, got without the policy.
    let replica = space.plane.admission().await?;
    let leader = wait::until(LIMIT, "a leader", async || Ok(space.leader(&job).await.map(Some)?)).await?;
    let mut leads = space.pod(&job, 0);
    leads["spec"]["affinity"] = serde_json::to_value(leader.spec.as_ref().unwrap().affinity.as_ref())?;
    let mut follows = space.pod(&job, 1);
    follows["spec"]["nodeSelector"] = json!({ space.rack(): "r1", "other": "selector" });
    let webhooks = ["delete", "mutatingwebhookconfiguration", "jobset-mutating-webhook-configuration"];
    space.plane.kubectl(&webhooks).await?;
    space.plane.check_placement().await?;

    let denied = |what: &str| {
        format!(
            "ValidatingAdmissionPolicy 'jobset-exclusive-placement' with binding 'jobset-exclusive-placement' denied \
             request: {what}"
        )
    };
    let selector = denied(&format!("spec.nodeSelector must contain {}, the domain of the leader", space.rack()));
    // A policy takes a moment to be active, and a webhook to be forgotten.
    wait::until_met(LIMIT, "a refusal by policy", async || match space.create(&space.pod(&job, 1)).await {
        Err(kube::Error::Api(status)) if status.message.contains(&selector) => Ok(Check::Met(())),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(Check::Unmet("it was created".to_owned())),
    })
    .await?;

    let together = denied("spec.affinity.podAffinity must require");
    let apart = denied("spec.affinity.podAntiAffinity must exclude");
    let term = "requiredDuringSchedulingIgnoredDuringExecution";
    let without = |kind: &str| {
        let mut pod = leads.clone();
        pod["spec"]["affinity"].as_object_mut().unwrap().remove(kind);
        pod
    };
    let with = |pointer: &str, value: Value| {
        let mut pod = leads.clone();
        *pod.pointer_mut(&format!("/spec/affinity/{pointer}")).unwrap() = value;
        pod
    };
    let mut other_selector = follows.clone();
    other_selector["spec"]["nodeSelector"] = json!({ "other": "selector" });
    let refused = [
        (other_selector, &selector),
        (space.pod(&job, 0), &together),
        (without("podAffinity"), &together),
        (without("podAntiAffinity"), &apart),
        (with(&format!("podAntiAffinity/{term}/0/topologyKey"), json!("zone")), &apart),
        (with(&format!("podAntiAffinity/{term}/0/labelSelector"), Value::Null), &apart),
        (with(&format!("podAntiAffinity/{term}/0/labelSelector/matchExpressions/1/values"), json!(["other"])), &apart),
        (with(&format!("podAffinity/{term}/0/labelSelector/matchExpressions/0/values"), json!(["other"])), &together),
    ];
    for (pod, expected) in refused {
        let status = refusal(space.create(&pod).await);
        assert!(status.message.contains(expected), "{}", status.message);
    }

    assert!(space.create(&leads).await.is_ok());
    assert!(space.create(&follows).await.is_ok());
    let mut by_selector = space.pod(&job, 1);
    annotations(&mut by_selector).insert("alpha.jobset.sigs.k8s.io/node-selector".to_owned(), json!("true"));
    let mut of_jobset = space.pod(&job, 1);
    annotations(&mut of_jobset).remove("alpha.jobset.sigs.k8s.io/exclusive-topology");
    let plain = json!({ "metadata": { "generateName": "plain-" }, "spec": space.pod(&job, 1)["spec"] });
    for pod in [by_selector, of_jobset, plain] {
        assert!(space.create(&pod).await.is_ok(), "{pod}");
    }
    replica.stop().await
}
