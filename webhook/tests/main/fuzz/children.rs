//! The children of what was admitted, as a real API server sees them: it takes each of them.

use anyhow::Result;
use futures::stream::{self, StreamExt as _};
use jobset_api::JobSet;
use kube::Api;
use kube::api::PostParams;
use kube::core::NamespaceResourceScope;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::rules::{self, Children};
use super::*;
use crate::cluster::Plane;

const OBJECTS: usize = 400;
const AT_ONCE: usize = 16;

#[tokio::test]
async fn the_api_server_takes_every_child_of_what_is_admitted() -> Result<()> {
    let plane = Plane::shared().await?;
    plane.kubectl(&["create", "namespace", "ml"]).await?;
    let client = plane.client();
    let mut admitted = 0;
    let mut children = Vec::new();
    // They are admitted in a runtime of their own.
    for (object, jobset) in tokio::task::spawn_blocking(|| samples().collect::<Vec<_>>()).await? {
        admitted += 1;
        children.push((object, rules::reconcile(jobset)));
    }
    let refusals: Vec<String> = stream::iter(&children)
        .map(|(object, children)| refusals(&client, object, children))
        .buffer_unordered(AT_ONCE)
        .concat()
        .await;
    assert!(refusals.is_empty(), "{}", refusals.join("\n"));
    assert!(admitted > OBJECTS / 20, "{admitted} of {OBJECTS} say little");
    Ok(())
}

/// Those of the changed manifests that are admitted. What is inside of a Job template is for Kubernetes to refuse.
fn samples() -> impl Iterator<Item = (Value, JobSet)> {
    let mut runner = TestRunner::deterministic();
    let manifests = manifests();
    let strategy = (any::<Index>(), prop::collection::vec(Mutation::any(), 1..4));
    (0..OBJECTS).filter_map(move |_| {
        let (index, mutations) = strategy.new_tree(&mut runner).unwrap().current();
        let mut object = index.get(&manifests).clone();
        object["metadata"]["namespace"] = json!("ml");
        for mutation in mutations {
            mutation.apply_where(&mut object, |place| !place.contains("/template") && place != "/spec/replicatedJobs");
        }
        let stored = admit("CREATE", &object, &Value::Null).unwrap()?;
        let gone = !stored["metadata"]["deletionTimestamp"].is_null();
        (!gone).then(|| (object, serde_json::from_value(stored).unwrap()))
    })
}

async fn refusals(client: &kube::Client, object: &Value, children: &Children) -> Vec<String> {
    let mut found = Vec::new();
    // The highest indexes have the longest names.
    for job in children.jobs.iter().rev().take(2) {
        found.extend(refused(client, job).await);
    }
    for service in &children.services {
        found.extend(refused(client, service).await);
    }
    for claim in &children.claims {
        found.extend(refused(client, claim).await);
    }
    for binding in &children.role_bindings {
        found.extend(refused(client, binding).await);
    }
    found.into_iter().map(|error| format!("{error}\n  of {object}")).collect()
}

async fn refused<K>(client: &kube::Client, child: &K) -> Option<String>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Serialize
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), "ml");
    let params = PostParams { dry_run: true, ..PostParams::default() };
    api.create(&params, child).await.err().map(|error| error.to_string())
}
