//! Pods of JobSets that avoid nodes, as a real API server creates them.

use anyhow::{Context as _, Result};
use jobset_api::{JobSet, labels};
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rstest::rstest;
use serde_json::{Value, json};

use crate::api_server::good;
use crate::cluster::LIMIT;
use crate::exclusive::Space;

/// Pointers into a Pod.
const PREFERRED: &str = "/spec/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution";
const TERMS: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

impl Space {
    pub(crate) fn jobsets(&self) -> Api<JobSet> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// A JobSet whose status says that it avoids these nodes.
    pub(crate) async fn avoiding(&self, name: &str, annotations: Value, nodes: &[&str]) -> Result<JobSet> {
        let mut jobset = good(name);
        jobset["metadata"] = json!({ "name": name, "annotations": annotations });
        self.jobsets().create(&PostParams::default(), &serde_json::from_value(jobset)?).await?;
        self.avoid(name, nodes.iter().map(|node| avoided(node)).collect()).await
    }

    async fn avoid(&self, name: &str, avoided: Value) -> Result<JobSet> {
        let status = Patch::Merge(json!({ "status": { "avoidedNodes": avoided } }));
        let jobset = self.jobsets().patch_status(name, &PatchParams::default(), &status).await?;
        let kept = jobset.status.as_ref().map_or(0, |status| status.avoided_nodes.len());
        anyhow::ensure!(kept == avoided.as_array().map_or(0, Vec::len), "the CRD has no status.avoidedNodes");
        Ok(jobset)
    }

    /// Creates a Pod; returns it as it is stored.
    pub(crate) async fn created(&self, pod: &Value) -> Result<Value> {
        Ok(serde_json::to_value(self.create(pod).await?)?)
    }

    /// Waits until a new Pod of the JobSet keeps away from nodes: the API server has to see the registration first, and what was said of
    /// the JobSet a moment ago counts.
    pub(crate) async fn until_kept_away(&self, jobset: &JobSet) -> Result<Value> {
        wait::until_met(LIMIT, "a Pod that keeps away from nodes", async || {
            let created = self.created(&pod(jobset)).await?;
            let kept = created.pointer("/spec/affinity/nodeAffinity").is_some();
            Ok(if kept { Check::Met(created) } else { Check::Unmet(created["spec"].to_string()) })
        })
        .await
    }
}

fn avoided(node: &str) -> Value {
    json!({ "node": node, "since": "2026-01-01T00:00:00Z", "until": "2100-01-01T00:00:00Z", "failures": 2, "reason": "Failures" })
}

/// A Pod of a JobSet that may avoid nodes.
pub(crate) fn pod(jobset: &JobSet) -> Value {
    json!({ "metadata": { "generateName": "train-w-0-0-", "labels": {
        labels::AVOIDS_NODES: "true", labels::JOBSET_NAME: jobset.name_any(), labels::JOBSET_UID: jobset.uid() } },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "w", "image": "w" }] } })
}

fn is_not(node: &str) -> Value {
    json!({ "key": "metadata.name", "operator": "NotIn", "values": [node] })
}

fn annotated(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][labels::AVOID_NODES].as_str()
}

#[tokio::test]
async fn pod_prefers_other_nodes_beside_affinity_of_user() -> Result<()> {
    let space = Space::new("avoid-preferred").await?;
    let jobset = space.avoiding("train", json!({}), &["bad", "worse.example.com"]).await?;
    space.until_kept_away(&jobset).await?;
    let zone = json!([{ "key": "zone", "operator": "In", "values": ["a"] }]);
    let own = json!({ "weight": 7, "preference": { "matchExpressions": zone } });
    let mut sent = pod(&jobset);
    sent["spec"]["affinity"] = json!({
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [own],
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{ "matchExpressions": zone }] } },
        "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "zone", "labelSelector": {} }] },
    });
    let created = space.created(&sent).await?;
    let elsewhere =
        json!({ "weight": 100, "preference": { "matchFields": [is_not("bad"), is_not("worse.example.com")] } });
    assert_eq!(created.pointer(PREFERRED), Some(&json!([own, elsewhere])));
    assert_eq!(created.pointer(TERMS), sent.pointer(TERMS));
    assert_eq!(created["spec"]["affinity"]["podAffinity"], sent["spec"]["affinity"]["podAffinity"]);
    assert_eq!(annotated(&created), None);
    Ok(())
}

#[tokio::test]
async fn hard_form_is_in_each_term_until_it_is_relaxed() -> Result<()> {
    let space = Space::new("avoid-required").await?;
    let annotations = json!({ labels::MOVE_AFTER_FAILURES: "2", labels::AVOID_NODES: "Required" });
    let jobset = space.avoiding("train", annotations, &["bad"]).await?;
    space.until_kept_away(&jobset).await?;
    let mut sent = pod(&jobset);
    let zone = |zone: &str| json!([{ "key": "zone", "operator": "In", "values": [zone] }]);
    sent["spec"]["affinity"] = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": zone("a") }, { "matchExpressions": zone("b") }] } } });
    let created = space.created(&sent).await?;
    let expected = json!([
        { "matchExpressions": zone("a"), "matchFields": [is_not("bad")] },
        { "matchExpressions": zone("b"), "matchFields": [is_not("bad")] },
    ]);
    assert_eq!(created.pointer(TERMS), Some(&expected));
    assert_eq!((created.pointer(PREFERRED), annotated(&created)), (None, Some("Required")));

    let mut relaxed = avoided("bad");
    (relaxed["relaxed"], relaxed["domain"], relaxed["topologyKey"]) = (json!(true), json!("r1"), json!("rack"));
    space.avoid("train", json!([relaxed])).await?;
    let created = wait::until(LIMIT, "a Pod that prefers other nodes", async || {
        let created = space.created(&sent).await?;
        Ok(created.pointer(PREFERRED).is_some().then_some(created))
    })
    .await?;
    let rack = json!([{ "key": "rack", "operator": "NotIn", "values": ["r1"] }]);
    let elsewhere =
        json!({ "weight": 100, "preference": { "matchFields": [is_not("bad")], "matchExpressions": rack } });
    assert_eq!(created.pointer(PREFERRED), Some(&json!([elsewhere])));
    assert_eq!((created.pointer(TERMS), annotated(&created)), (sent.pointer(TERMS), None));
    Ok(())
}

#[rstest]
#[case::without_label("avoid-unlabelled", "/metadata/labels/jobset.sigs.k8s.io~1avoids-nodes", Value::Null)]
#[case::of_no_jobset("avoid-unnamed", "/metadata/labels/jobset.sigs.k8s.io~1jobset-name", Value::Null)]
#[case::of_unknown_jobset("avoid-unknown", "/metadata/labels/jobset.sigs.k8s.io~1jobset-name", json!("nobody"))]
#[case::of_earlier_jobset("avoid-earlier", "/metadata/labels/jobset.sigs.k8s.io~1jobset-uid", json!("earlier"))]
#[case::pinned("avoid-pinned", "/spec/nodeSelector", json!({ "kubernetes.io/hostname": "bad" }))]
#[case::placed_by_kueue("avoid-kueue", "/spec/schedulingGates", json!([{ "name": "kueue.x-k8s.io/topology" }]))]
#[tokio::test]
async fn other_pods_are_created_as_sent(
    #[case] namespace: &'static str,
    #[case] pointer: &str,
    #[case] value: Value,
) -> Result<()> {
    let space = Space::new(namespace).await?;
    let jobset = space.avoiding("train", json!({}), &["bad"]).await?;
    space.until_kept_away(&jobset).await?;
    let mut sent = pod(&jobset);
    let (parent, field) = pointer.rsplit_once('/').context("no field")?;
    let parent = sent.pointer_mut(parent).and_then(Value::as_object_mut).context("no parent")?;
    match value {
        Value::Null => drop(parent.remove(&field.replace("~1", "/"))),
        value => drop(parent.insert(field.replace("~1", "/"), value)),
    }
    let created = space.created(&sent).await?;
    assert_eq!(created["spec"].get("affinity"), None);
    Ok(())
}

#[tokio::test]
async fn pod_whose_jobset_avoids_nothing_is_created_as_sent() -> Result<()> {
    let space = Space::new("avoid-nothing").await?;
    let jobset = space.avoiding("train", json!({}), &["bad"]).await?;
    space.until_kept_away(&jobset).await?;
    let as_sent = async |jobset: &JobSet| {
        wait::until(LIMIT, "a Pod without affinity", async || {
            Ok(space.created(&pod(jobset)).await?["spec"].get("affinity").is_none().then_some(()))
        })
        .await
    };
    space.avoid("train", json!([])).await?;
    as_sent(&jobset).await?;
    space.avoid("train", json!([avoided("bad")])).await?;
    space.until_kept_away(&jobset).await?;
    space.jobsets().delete("train", &DeleteParams::default()).await?;
    as_sent(&jobset).await
}

/// Exclusive placement chooses the domain, and the preference a node in it.
#[tokio::test]
async fn leader_of_exclusive_job_gets_both_affinities() -> Result<()> {
    let space = Space::new("avoid-exclusive").await?;
    let jobset = space.avoiding("train", json!({}), &["bad"]).await?;
    space.until_kept_away(&jobset).await?;
    let job = space.job("train-w-0").await?;
    let mut leader = space.pod(&job, 0);
    for (key, value) in
        [(labels::AVOIDS_NODES, "true".to_owned()), (labels::JOBSET_UID, jobset.uid().unwrap_or_default())]
    {
        leader["metadata"]["labels"][key] = json!(value);
    }
    let created: Pod = space.create(&leader).await?;
    let affinity = created.spec.and_then(|spec| spec.affinity).context("no affinity")?;
    assert!(
        affinity.pod_affinity.is_some() && affinity.pod_anti_affinity.is_some() && affinity.node_affinity.is_some()
    );
    Ok(())
}
