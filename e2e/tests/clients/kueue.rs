//! JobSets in queues of Kueue: restarts in place, eviction in the middle of one, another flavour, and fields that Kueue's types
//! do not have.

use anyhow::{Context, Result, ensure};
use jobset_api::JobSet;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::{Group, LIMIT, Workers};
use jobset_harness::process::Signal;
use jobset_harness::progress::progress;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::SUPERVISED;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::queue::{self, FLAVORS, INSTANCE_TYPE, PRIORITY, evictions, set_active, workload};
use super::{condition, is_suspended, untyped};
use crate::kubelet::assert_in_place;

/// Restarts in place under WaitForPodsReady, by the shape of the agent. A sidecar needs a kubelet's looks for each.
const RESTARTS: [(&str, i32); 2] = [("Supervisor", 100), ("Sidecar", 20)];

#[tokio::test]
#[ignore = "ten minutes: make clients"]
async fn queued_jobsets_restart_in_place_are_evicted_and_come_back() -> Result<()> {
    let cluster = queue::cluster().await?;
    loses_no_field(&cluster).await?;
    for (shape, restarts) in RESTARTS {
        restarts_without_eviction(&cluster, shape, restarts).await?;
    }
    waits_of_a_back_off(&cluster).await?;
    preempted_in_the_middle_of_a_restart(&cluster).await?;
    admitted_again_with_another_flavor(&cluster).await?;
    cluster.stop().await
}

/// Kueue's patches replace the list `replicatedJobs` by what its own Go types have read of it.
async fn loses_no_field(cluster: &Cluster) -> Result<()> {
    let group = queue::wait_for_queue(cluster, "fields", SUPERVISED, |mut workload| {
        workload.0["spec"]["failurePolicy"]["restartBackoff"] =
            json!({"initialSeconds": 2, "factor": 3, "maxSeconds": 20, "stableSeconds": 30});
        let job = &mut workload.0["spec"]["replicatedJobs"][0];
        job["groupName"] = json!("everyone");
        job["template"]["spec"]["podFailurePolicy"]["rules"][0]["setConditionReason"] = json!("Broken");
        workload.each_pod(|pod| {
            pod["tolerations"] = json!([{"key": "example.com/own", "operator": "Exists"}]);
            pod["terminationGracePeriodSeconds"] = json!(7);
        });
        workload
    })
    .await?;
    // Kueue admits it only once the queue is there.
    let sent = stored(&group).await?;
    queue::open(cluster, "fields").await?;
    group.runs_in_epoch(1).await?;
    let admitted = stored(&group).await?;
    let spec = |jobset: &DynamicObject| {
        let mut spec = jobset.data["spec"].clone();
        spec["suspend"] = Value::Null;
        for job in spec["replicatedJobs"].as_array_mut().into_iter().flatten() {
            let template = &mut job["template"]["spec"]["template"];
            // What Kueue adds where it admits.
            template["spec"]["nodeSelector"] = Value::Null;
            let owned = |entries: &mut Value| {
                if let Some(entries) = entries.as_object_mut() {
                    entries.retain(|key, _| !key.starts_with("kueue.x-k8s.io/"));
                }
            };
            owned(&mut template["metadata"]["labels"]);
            owned(&mut template["metadata"]["annotations"]);
        }
        without_empty(spec)
    };
    let (before, after) = (spec(&sent), spec(&admitted));
    ensure!(before == after, "Kueue has changed more than it may:\n{before:#}\n{after:#}");
    progress("Kueue's patches lose no field");
    group.remove().await
}

/// The JobSet as the API server has it: nothing is read by types.
async fn stored(group: &Group) -> Result<DynamicObject> {
    let api = untyped(group.client.clone(), &group.namespace, jobset_api::GROUP, jobset_api::VERSION, "JobSet");
    Ok(api.get(&group.name).await?)
}

/// A value without fields that are null or have nothing in them: `{}` and an absent field mean the same to both.
fn without_empty(value: Value) -> Value {
    let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (key, without_empty(value)));
            Value::Object(fields.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(without_empty).collect()),
        other => other,
    }
}

/// In each restart the Pods are not ready for a while: less than Kueue waits.
async fn restarts_without_eviction(cluster: &Cluster, shape: &str, restarts: i32) -> Result<()> {
    let namespace = format!("ready-{}", shape.to_lowercase());
    let group = queue::apply(cluster, &namespace, SUPERVISED, |it| it.injected(shape).with_max_restarts(200)).await?;
    let mut before = group.runs_in_epoch(1).await?;
    for epoch in 2..=restarts + 1 {
        let victim = before.values().next().context("no worker")?;
        group.exit(victim, 1).await?;
        let after = group.runs_in_epoch(epoch).await?;
        assert_in_place(&before, &after);
        before = after;
    }
    let status = group.status().await?;
    assert_eq!((status.restarts_count_towards_max, status.restarts), (restarts, 0));
    let known = workload(&group).await?;
    assert_eq!((condition(&known, "Evicted").as_str(), evictions(&known)), ("", 0), "{:#}", known.data["status"]);
    wait::until(LIMIT, "Kueue to see that all Pods are ready", || async {
        Ok((condition(&workload(&group).await?, "PodsReady") == "True").then_some(()))
    })
    .await?;
    progress(&format!("{shape}: {restarts} restarts in place under WaitForPodsReady, no eviction"));
    group.remove().await
}

/// While a group waits before it restarts, its Pods are not ready. Below Kueue's recovery time-out that costs nothing, above it an
/// eviction.
async fn waits_of_a_back_off(cluster: &Cluster) -> Result<()> {
    for (seconds, is_evicted) in [(5, false), (300, true)] {
        let backoff = json!({"initialSeconds": seconds, "maxSeconds": seconds, "stableSeconds": 600});
        let namespace = format!("backoff-{seconds}");
        let group = queue::apply(cluster, &namespace, SUPERVISED, |it| it.with_backoff(backoff)).await?;
        for epoch in 1..=2 {
            let workers = group.runs_in_epoch(epoch).await?;
            group.exit(workers.values().next().context("no worker")?, 1).await?;
        }
        wait::until(LIMIT, "Kueue to see that Pods are not ready", || async {
            Ok((condition(&workload(&group).await?, "PodsReady") == "False").then_some(()))
        })
        .await?;
        if is_evicted {
            wait::until(LIMIT, "Kueue to evict the JobSet", || async {
                Ok((evictions(&workload(&group).await?) > 0).then_some(()))
            })
            .await?;
            is_suspended(&group).await?;
        } else {
            group.runs_in_epoch(3).await?;
            assert_eq!(evictions(&workload(&group).await?), 0);
        }
        progress(&format!("a wait of {seconds} s: {} evictions", evictions(&workload(&group).await?)));
        group.remove().await?;
    }
    Ok(())
}

/// A worker has failed, one agent is stopped and so cannot come to the barrier, and then a JobSet comes that is more urgent.
async fn preempted_in_the_middle_of_a_restart(cluster: &Cluster) -> Result<()> {
    queue::set_quota(cluster, [1, 0]).await?;
    let low = queue::apply(cluster, "preempted", SUPERVISED, |it| it.labelled(PRIORITY, "low")).await?;
    let workers = low.runs_in_epoch(1).await?;
    let (first, last) = (workers.values().next().context("no worker")?, workers.values().last().context("no worker")?);
    let stopped = low.agent(&last.pod)?;
    stopped.signal(Signal::STOP).context("cannot stop an agent")?;
    low.exit(first, 1).await?;
    wait::until(LIMIT, "the restart to begin", || async {
        let status = low.status().await?;
        Ok((status.deprecated_epoch == 1 && status.synced_epoch == 1).then_some(()))
    })
    .await?;
    let high = queue::apply(cluster, "urgent", SUPERVISED, |it| it.labelled(PRIORITY, "high")).await?;
    is_suspended(&low).await?;
    assert_eq!(evictions(&workload(&low).await?), 1);
    for worker in high.runs_in_epoch(1).await?.values() {
        high.exit(worker, 0).await?;
    }
    assert_eq!(high.finished().await?.terminal_state, "Completed");

    let after = runs_again(&low).await?;
    let status = low.status().await?;
    assert_eq!(status.restarts_count_towards_max, 1, "the one failure is counted once: {status:?}");
    let victim = after.values().next().context("no worker")?;
    low.exit(victim, 1).await?;
    let after = low.runs_in_epoch(status.synced_epoch + 1).await?;
    assert_eq!(low.status().await?.restarts_count_towards_max, 2);
    for worker in after.values() {
        low.exit(worker, 0).await?;
    }
    assert_eq!(low.finished().await?.terminal_state, "Completed");
    progress("preempted in the middle of a restart, admitted again, restarted in place, and completed");
    high.remove().await?;
    low.remove().await
}

/// Waits until the JobSet is in no restart and all its workers run.
pub(super) async fn runs_again(group: &Group) -> Result<Workers> {
    let epoch = wait::until_met(LIMIT, format!("the restart of {} to end", group.name), || async {
        let jobset: JobSet = group.jobsets.get(&group.name).await?;
        let status = jobset.status.unwrap_or_default();
        let ready = group.live_pods().await?.iter().filter(|pod| jobset_harness::workload::is_ready(pod)).count();
        let is_between = status.synced_epoch > status.deprecated_epoch;
        Ok(if jobset.spec.suspend != Some(true) && is_between && ready == group.workers {
            Check::Met(status.synced_epoch)
        } else {
            Check::Unmet(format!("epochs {} and {}, {ready} ready", status.synced_epoch, status.deprecated_epoch))
        })
    })
    .await?;
    group.runs_in_epoch(epoch).await
}

/// The Pods have the node selector of the flavor that was given last, and of no other.
async fn admitted_again_with_another_flavor(cluster: &Cluster) -> Result<()> {
    queue::set_quota(cluster, [2, 0]).await?;
    let group = queue::apply(cluster, "flavors", SUPERVISED, |it| it).await?;
    group.runs_in_epoch(1).await?;
    assert_flavor(&group, FLAVORS[0]).await?;
    queue::set_quota(cluster, [0, 2]).await?;
    set_active(&group, false).await?;
    is_suspended(&group).await?;
    set_active(&group, true).await?;
    let before = runs_again(&group).await?;
    assert_flavor(&group, FLAVORS[1]).await?;
    let epoch = group.status().await?.synced_epoch;
    group.exit(before.values().next().context("no worker")?, 1).await?;
    assert_in_place(&before, &group.runs_in_epoch(epoch + 1).await?);
    progress("admitted again with another flavour");
    group.remove().await
}

async fn assert_flavor(group: &Group, flavor: &str) -> Result<()> {
    for pod in group.live_pods().await? {
        let selector = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_selector.clone()).unwrap_or_default();
        let wanted = [(INSTANCE_TYPE.to_owned(), flavor.to_owned())].into();
        assert_eq!(selector(&pod), wanted, "{}", pod.name_any());
    }
    Ok(())
}
