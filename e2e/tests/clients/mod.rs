//! JobSets that others make or suspend: the real managers of Kueue and Trainer, beyond what their own suites try.

mod explained;
mod kueue;
mod multikueue;
mod queue;
mod topology;
mod trainer;

use anyhow::Result;
use jobset_harness::group::{Group, LIMIT};
use jobset_harness::wait::{self, Check};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};

/// Objects of a kind that has no type here: nothing of them is lost.
fn untyped(client: Client, namespace: &str, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client, namespace, &resource)
}

/// The status of a condition; empty if it was never set.
fn condition(object: &DynamicObject, kind: &str) -> String {
    let conditions = object.data["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default().to_owned()
}

/// Waits until the JobSet is suspended, and its Pods are gone.
async fn is_suspended(group: &Group) -> Result<()> {
    wait::until_met(LIMIT, format!("{} to be suspended without Pods", group.name), || async {
        let suspended = group.jobsets.get(&group.name).await?.spec.suspend;
        let pods = group.pods.list(&ListParams::default()).await?.items.len();
        Ok(if suspended == Some(true) && pods == 0 {
            Check::Met(())
        } else {
            Check::Unmet(format!("suspend {suspended:?}, {pods} Pods"))
        })
    })
    .await
}
