//! BlockingRecreate: no Job of the new attempt while a Pod of the old one is left.

use anyhow::{Context, Result};
use futures::{Stream, StreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::fixture::{LIMIT, Space};
use crate::kubelet::pod_of;
use crate::workload::recreated;

/// What happens to the objects of this kind that carry the JobSet's label.
async fn events<K>(api: &Api<K>) -> Result<impl Stream<Item = kube::Result<WatchEvent<K>>> + Unpin + use<K>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug + Send + Resource<DynamicType = ()> + 'static,
{
    let params = WatchParams::default().labels("jobset.sigs.k8s.io/jobset-name=train");
    Ok(Box::pin(api.watch(&params, "0").await?))
}

/// The version at which something happened, of the first event that says so. Versions of all kinds are of one clock.
async fn version<K: Resource>(
    events: &mut (impl Stream<Item = kube::Result<WatchEvent<K>>> + Unpin),
    says_so: impl Fn(&WatchEvent<K>) -> bool,
) -> Result<u64> {
    let found = async {
        loop {
            let event = events.next().await.context("the watch has ended")??;
            if says_so(&event)
                && let WatchEvent::Added(object) | WatchEvent::Deleted(object) = event
            {
                return anyhow::Ok(object.resource_version().unwrap_or_default().parse()?);
            }
        }
    };
    tokio::time::timeout(LIMIT, found).await.context("it has not happened in time")?
}

/// A JobSet one of whose Pods is on a node, and so takes its time to go.
async fn with_a_slow_pod(space: &Space) -> Result<Pod> {
    let policy = json!({"maxRestarts": 1, "restartStrategy": "BlockingRecreate"});
    space.create(recreated("train", &policy, &[("w", 2)])).await?;
    let pods = space.pods("train", 2, "0").await?;
    let slow = pod_of(&pods, "train-w-0", "0").context("no Pod")?.clone();
    space.bind(&slow, json!({"metadata": {"name": format!("node-of-{}", space.namespace)}})).await?;
    Ok(slow)
}

fn is_of_the_new_attempt(event: &WatchEvent<Job>) -> bool {
    matches!(event, WatchEvent::Added(job) if job.labels()["jobset.sigs.k8s.io/restart-attempt"] == "1")
}

#[tokio::test]
async fn blocking_recreate_waits_for_last_pod_of_old_attempt() -> Result<()> {
    let space = Space::new("blocking-recreate").await?;
    let slow = with_a_slow_pod(&space).await?;
    let (mut jobs, mut pods) = (events(&space.jobs()).await?, events(&space.all_pods()).await?);
    space.fail_job("train-w-1", "BackoffLimitExceeded").await?;
    space.job_gone("train-w-1").await?;
    space.job_where("train-w-0", "to be going", |job| job.metadata.deletion_timestamp.is_some()).await?;
    space.release(&slow).await?;
    let gone = version(&mut pods, |event| matches!(event, WatchEvent::Deleted(pod) if pod.uid() == slow.uid())).await?;
    let created = version(&mut jobs, is_of_the_new_attempt).await?;
    assert!(created > gone, "created at {created}, gone at {gone}");
    space.pods("train", 2, "1").await?;
    Ok(())
}
