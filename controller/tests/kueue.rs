//! What Kueue does to a JobSet, by the same requests: it creates it suspended, writes into its templates where its Pods
//! shall run, resumes it, and takes all of that back when it evicts it.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::expect::uids;
use crate::fixture::Space;
use crate::jobsets::{group, jobset, with};
use crate::outcome::restarts;

/// What the user wrote into the templates of Pods, which stays whatever Kueue does.
fn users_own() -> Value {
    json!({"template": {"spec": {"template": {
        "metadata": {"labels": {"team": "a"}, "annotations": {"note": "mine"}},
        "spec": {"nodeSelector": {"zone": "z1"}, "tolerations": [{"key": "mine", "operator": "Exists"}]},
    }}}})
}

fn groups() -> [Value; 2] {
    [group("driver", 1, 1), group("workers", 2, 1)].map(|group| with(group, &users_own()))
}

/// The templates as Kueue fills them in for an admission to a flavor: it adds to what the user wrote. A merge patch
/// cannot change one entry of a list, so it sends them all.
fn admitted_to(flavor: &str) -> Value {
    let mut groups = groups();
    for group in &mut groups {
        let podset = group["name"].clone();
        let template = &mut group["template"]["spec"]["template"];
        template["metadata"]["labels"][format!("flavor-{flavor}")] = json!("admitted");
        template["metadata"]["labels"]["kueue.x-k8s.io/podset"] = podset;
        template["metadata"]["annotations"][format!("flavor-{flavor}")] = json!("admitted");
        template["spec"]["nodeSelector"][format!("flavor-{flavor}")] = json!("admitted");
        let keys = ["mine", &*format!("flavor-{flavor}")];
        template["spec"]["tolerations"] = keys.map(|key| json!({"key": key, "operator": "Exists"})).into();
        template["spec"]["schedulingGates"] = json!([{"name": format!("example.com/flavor-{flavor}")}]);
    }
    json!(groups)
}

/// Where a Pod may run and what it is marked with, without what Kubernetes and the JobSet add.
fn placing(pod: &Pod) -> Value {
    let added =
        |key: &str| key.contains("jobset.sigs.k8s.io/") || key.contains("controller-uid") || key.contains("job-");
    let own = |marks: &std::collections::BTreeMap<String, String>| -> Value {
        marks.iter().filter(|(key, _)| !added(key)).map(|(key, value)| (key.clone(), json!(value))).collect()
    };
    let spec = pod.spec.clone().unwrap_or_default();
    let mut tolerations: Vec<String> = spec.tolerations.into_iter().flatten().filter_map(|it| it.key).collect();
    tolerations.retain(|key| !key.starts_with("node.kubernetes.io/"));
    let gates: Vec<String> = spec.scheduling_gates.into_iter().flatten().map(|gate| gate.name).collect();
    json!([own(pod.labels()), own(pod.annotations()), spec.node_selector, tolerations, gates])
}

/// The same of every Pod of a replicatedJob that is admitted to this flavor and no other.
fn placed_in(flavor: &str, podset: &str) -> Value {
    let flavor = &*format!("flavor-{flavor}");
    json!([
        {"team": "a", "kueue.x-k8s.io/podset": podset, flavor: "admitted"},
        {"note": "mine", flavor: "admitted"},
        {"zone": "z1", flavor: "admitted"},
        ["mine", flavor],
        [format!("example.com/{flavor}")],
    ])
}

impl Space {
    /// Waits until all Jobs are suspended and none is active: then Kueue gives the quota to somebody else.
    async fn is_given_back(&self) -> Result<()> {
        self.counts("train", "driver", [0, 0, 1, 0, 0]).await?;
        self.counts("train", "workers", [0, 0, 2, 0, 0]).await?;
        // Not before the last Pod is gone.
        let pods = self.all_pods().list(&kube::api::ListParams::default()).await?.items;
        let left: Vec<String> =
            pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any).collect();
        assert!(left.is_empty(), "{left:?}");
        Ok(())
    }

    async fn runs_in(&self, flavor: &str) -> Result<()> {
        let pods = self.pods("train", 3, "0").await?;
        for pod in &pods {
            let podset = pod.labels().get("jobset.sigs.k8s.io/replicatedjob-name").context("no replicatedJob")?;
            assert_eq!(placing(pod), placed_in(flavor, podset), "{}", pod.name_any());
        }
        self.counts("train", "workers", [2, 0, 0, 0, 0]).await?;
        Ok(())
    }
}

#[tokio::test]
async fn readmitted_workload_has_labels_of_new_flavor_alone() -> Result<()> {
    let space = Space::new("kueue").await?;
    space.create(with(jobset("train", &groups()), &json!({"spec": {"suspend": true}}))).await?;
    space.is_given_back().await?;
    let names = ["train-driver-0", "train-workers-0", "train-workers-1"];
    let before = space.jobs_of("train", &names).await?;

    for flavor in ["a", "b", "a"] {
        space.edit("train", json!({"spec": {"suspend": false, "replicatedJobs": admitted_to(flavor)}})).await?;
        space.runs_in(flavor).await?;
        space.edit("train", json!({"spec": {"suspend": true, "replicatedJobs": groups()}})).await?;
        space.is_given_back().await?;
    }
    // And once without taking anything back in between.
    for flavor in ["b", "a"] {
        space.edit("train", json!({"spec": {"suspend": false, "replicatedJobs": admitted_to(flavor)}})).await?;
        space.runs_in(flavor).await?;
        space.suspend("train", true).await?;
        space.is_given_back().await?;
    }
    let after = space.jobs_of("train", &names).await?;
    assert_eq!(uids(&before), uids(&after), "the same Jobs all the time");
    let status = space.counts("train", "workers", [0, 0, 2, 0, 0]).await?;
    assert_eq!(restarts(&status), (0, 0, 0));
    Ok(())
}

#[tokio::test]
async fn an_apply_of_suspend_alone_suspends_and_changes_nothing_else() -> Result<()> {
    let space = Space::new("apply-suspend").await?;
    let before = space.create(jobset("train", &groups())).await?;
    space.pods("train", 3, "0").await?;
    let apply = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"suspend": true}});
    let params = PatchParams::apply("trainer").force();
    let after = space.jobsets().patch("train", &params, &Patch::Apply(apply)).await?;
    assert_eq!(after.spec.replicated_jobs, before.spec.replicated_jobs);
    space.is_given_back().await?;
    Ok(())
}
