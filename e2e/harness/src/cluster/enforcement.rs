//! Follows NetworkPolicies, Pods and namespaces of a cluster, and keeps the rules of nftables that enforce them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use futures::stream::{BoxStream, select_all};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::AbortHandle;

use super::network;
use super::policies::PolicyInputs;

/// NetworkPolicies are enforced while this lives. The rules of the last moment stay until the cluster ends.
pub struct Enforcement(AbortHandle);

impl Drop for Enforcement {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Enforcement {
    /// Waits until the rules of all policies that exist are in place.
    pub(super) async fn start(client: Client, supervisor: PathBuf) -> Result<Self> {
        let (policies, changes_of_policies) = followed::<NetworkPolicy>(&client);
        let (pods, changes_of_pods) = followed::<Pod>(&client);
        let (namespaces, changes_of_namespaces) = followed::<Namespace>(&client);
        let mut changes = select_all([changes_of_policies, changes_of_pods, changes_of_namespaces]);
        let mut applied = String::new();
        let inputs = move || PolicyInputs { policies: all(&policies), pods: all(&pods), namespaces: all(&namespaces) };
        let mut to_be_listed = 3;
        while to_be_listed > 0 {
            let is_listed = changes.next().await.context("a watch has ended")?;
            to_be_listed -= u32::from(is_listed);
        }
        apply(&supervisor, &inputs(), &mut applied).await?;
        let follow = async move {
            while changes.next().await.is_some() {
                if let Err(error) = apply(&supervisor, &inputs(), &mut applied).await {
                    eprintln!("NetworkPolicies are not enforced: {error:#}");
                }
            }
        };
        Ok(Self(tokio::spawn(follow).abort_handle()))
    }
}

/// The objects of a kind, and a stream of their changes: it says whether they have just been listed.
fn followed<K>(client: &Client) -> (Store<K>, BoxStream<'static, bool>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff();
    (store, changes(reflector::reflector(writer, events)).boxed())
}

/// An item for each event that changes what a store shows.
fn changes<K: Send>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
) -> impl Stream<Item = bool> + Send {
    events.filter_map(|event| async move {
        match event {
            Ok(watcher::Event::InitDone) => Some(true),
            Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => Some(false),
            _ => None,
        }
    })
}

fn all<K>(store: &Store<K>) -> Vec<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.state().iter().map(|object| (**object).clone()).collect()
}

/// Brings the rules into force, if they are others than before.
async fn apply(supervisor: &Path, inputs: &PolicyInputs, applied: &mut String) -> Result<()> {
    let script = inputs.script()?;
    if script != *applied {
        network::nft(supervisor, &script).await?;
        *applied = script;
    }
    Ok(())
}
