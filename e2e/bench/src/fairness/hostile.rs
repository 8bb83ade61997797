//! JobSets that ask for as much as the API server takes, of every kind that is known, in a namespace of their own that admission
//! does not see; and a tenant that changes them all the time.

use std::time::Duration;

use anyhow::{Context, Result};
use jobset_api::JobSet;
use jobset_harness::admission;
use jobset_harness::cluster::Cluster;
use jobset_harness::install;
use jobset_harness::process;
use jobset_harness::progress::progress;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::meter;

const NAMESPACE: &str = "hostile";
/// Time between two changes. Two hundred JobSets are changed in 10 s.
const CHANGE: Duration = Duration::from_millis(50);

pub(super) struct HostileJobSets {
    jobsets: Api<JobSet>,
    names: Vec<String>,
}

impl HostileJobSets {
    /// Creates `count` JobSets, of the kinds in turn. A JobSet that the API server itself refuses is left out.
    pub(super) async fn create(cluster: &Cluster, count: usize) -> Result<Self> {
        let client = cluster.client();
        install::create_namespace(&client, NAMESPACE).await?;
        admission::exempt(&client, NAMESPACE).await?;
        let jobsets: Api<JobSet> = Api::namespaced(client.clone(), NAMESPACE);
        let raw = kube::core::Request::new(format!("/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"));
        let mut names = Vec::new();
        for index in 0..count {
            let (kind, spec) = kind(index);
            let name = format!("{kind}-{index}");
            let jobset = json!({
                "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": spec,
            });
            let body = serde_json::to_vec(&jobset)?;
            match client.request::<Value>(raw.create(&PostParams::default(), body)?).await {
                Ok(_) => names.push(name),
                Err(error) => progress(&format!("{name} is refused: {error:.200}")),
            }
        }
        progress(&format!("{} hostile JobSets", names.len()));
        Ok(Self { jobsets, names })
    }

    pub(super) fn count(&self) -> usize {
        self.names.len()
    }

    pub(super) async fn remove(&self) -> Result<()> {
        self.jobsets.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
        Ok(())
    }

    /// Changes one JobSet after the other, for ever: each change makes a new generation, which has to be judged again.
    pub(super) async fn change_for_ever(&self) -> Result<()> {
        for (turn, name) in self.names.iter().cycle().enumerate() {
            let suspended = (turn / self.names.len()) % 2 == 1;
            let spec = json!({"suspend": suspended, "ttlSecondsAfterFinished": 1_000_000 + turn});
            let patch = Patch::Merge(json!({"spec": spec}));
            match self.jobsets.patch_metadata(name, &PatchParams::default(), &patch).await {
                Ok(_) | Err(kube::Error::Api(_)) => {}
                Err(error) => return Err(error).with_context(|| format!("cannot change {name}")),
            }
            tokio::time::sleep(CHANGE).await;
        }
        Ok(())
    }
}

/// The most memory that a controller has taken so far, in KiB.
pub(super) fn controllers_peak_kib() -> Result<u64> {
    let mut peak = 0;
    for controller in process::find("jobset-controller", &[])? {
        let status = meter::status(controller.pid.as_raw_nonzero().get().try_into()?)?;
        peak = peak.max(status.vmhwm.unwrap_or(0));
    }
    Ok(peak)
}

fn list(count: usize, entry: impl Fn(usize) -> Value) -> Value {
    (0..count).map(entry).collect()
}

/// One replicatedJob of this many Jobs, with this part of its Pod template.
fn heavy(replicas: i32, field: &str, entries: &Value) -> Value {
    let mut pod = json!({
        "restartPolicy": "Never", "containers": [{"name": "c", "image": install::WORKER_IMAGE}],
    });
    match field {
        "env" | "ports" | "volumeMounts" => pod["containers"][0][field] = entries.clone(),
        _ => pod[field] = entries.clone(),
    }
    let template = json!({"spec": {"parallelism": 1, "completions": 1, "template": {"spec": pod}}});
    json!({"suspend": true, "replicatedJobs": [{"name": "w", "replicas": replicas, "template": template}]})
}

/// In place, four replicatedJobs of this size.
fn large(size: i32) -> Value {
    let worker = json!({
        "name": "worker", "image": install::WORKER_IMAGE, "command": ["jobset-agent", "supervise", "--", "train"],
        "restartPolicy": "Never",
        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0, 82]}}],
    });
    let group = |index: usize| {
        json!({"name": format!("w{index}"), "replicas": size, "template": {"spec": {
            "parallelism": size, "completions": size, "completionMode": "Indexed", "backoffLimit": i32::MAX,
            "podReplacementPolicy": "Failed", "template": {"spec": {"restartPolicy": "Never", "containers": [worker]}},
        }}})
    };
    json!({"suspend": true, "failurePolicy": {"maxRestarts": 5, "restartStrategy": "InPlaceRestart"},
           "replicatedJobs": list(4, group)})
}

/// A failure policy of so many patterns, each of which compiles to a mebibyte.
fn patterns(count: usize) -> Value {
    let pattern = |index: usize| json!(format!(r"{index}[\p{{L}}\p{{N}}]{{1,24}}(x|y|z){{1,90}}"));
    let mut spec = heavy(3, "env", &json!([]));
    spec["failurePolicy"] =
        json!({"rules": [{"action": "RestartJobSet", "onJobFailureMessagePatterns": list(count, pattern)}]});
    spec
}

/// Many replicatedJobs, each of which depends on five before it.
fn dependent(count: usize) -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let depends_on =
        |index: usize| list(index.min(5), |back| json!({"name": format!("w{}", index - 1 - back), "status": "Ready"}));
    let group = |index: usize| {
        json!({"name": format!("w{index}"), "replicas": 1, "dependsOn": depends_on(index),
               "template": {"spec": {"template": {"spec": pod}}}})
    };
    json!({"suspend": true, "replicatedJobs": list(count, group)})
}

/// A kind of hostile JobSet, and its specification.
fn kind(index: usize) -> (&'static str, Value) {
    let numbered = |number: usize| json!({"name": format!("v{number}")});
    match index % 9 {
        0 => ("volumes", heavy(200, "volumes", &list(5_000, numbered))),
        1 => ("volumes-max", heavy(1, "volumes", &list(77_000, numbered))),
        2 => ("env", heavy(200, "env", &list(20_000, numbered))),
        3 => {
            ("tolerations", heavy(20_000, "tolerations", &list(20_000, |number| json!({"key": format!("k{number}")}))))
        }
        4 => ("grow", large(i32::MAX)),
        5 => ("patterns", patterns(256)),
        6 => ("replicated-jobs", dependent(4_000)),
        7 => ("jobs", heavy(i32::MAX, "nodeSelector", &json!({}))),
        _ => (
            "containers",
            heavy(100, "initContainers", &list(6_000, |number| json!({"name": format!("c{number}"), "image": "i"}))),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_jobsets_stay_below_the_largest_request() {
        for index in 0..9 {
            let (kind, spec) = kind(index);
            let bytes = serde_json::to_vec(&spec).unwrap().len();
            assert!(bytes < 1_400_000, "{kind}: {bytes} bytes");
        }
    }
}
