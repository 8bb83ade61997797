//! Signals changes, after which the caller reads the objects again. Only metadata is watched.

use std::time::Duration;

use futures::stream::{BoxStream, select_all};
use futures::{StreamExt as _, TryStreamExt as _};
use jobset_api::JobSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event as Watched};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};

use super::connect::Cluster;
use super::fetch::{about, children};

/// Changes within this time are signalled together.
const TOGETHER: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub enum WatchScope {
    /// The JobSets of the namespace, or of all namespaces.
    List { all_namespaces: bool },
    /// A JobSet with its Jobs and Pods.
    Tree(String),
    /// A JobSet with the Events about it.
    Events(Box<JobSet>),
}

pub struct ChangeStream(BoxStream<'static, ()>);

impl ChangeStream {
    /// Starts to watch. Existing objects count as a change, so no change between the first read and the watch is lost.
    pub fn begin(cluster: &Cluster, scope: &WatchScope) -> Self {
        let here: Api<PartialObjectMeta<JobSet>> = cluster.api();
        let named = |name: &str| Config::default().fields(&format!("metadata.name={name}"));
        let streams = match scope {
            WatchScope::List { all_namespaces: true } => {
                vec![changes(Api::<PartialObjectMeta<JobSet>>::all(cluster.client.clone()), Config::default())]
            }
            WatchScope::List { .. } => vec![changes(here, Config::default())],
            WatchScope::Tree(name) => {
                let selector = children(name).label_selector.unwrap_or_default();
                let config = || Config::default().labels(&selector);
                vec![
                    changes(here, named(name)),
                    changes(cluster.api::<PartialObjectMeta<Job>>(), config()),
                    changes(cluster.api::<PartialObjectMeta<Pod>>(), config()),
                ]
            }
            WatchScope::Events(jobset) => {
                let name = jobset.name_any();
                let selector = about(&name, &jobset.uid().unwrap_or_default());
                vec![
                    changes(here, named(&name)),
                    changes(cluster.api::<PartialObjectMeta<Event>>(), Config::default().fields(&selector)),
                ]
            }
        };
        Self(select_all(streams).boxed())
    }

    /// Waits for the next change, and collects those that follow within a short time.
    pub async fn next(&mut self) {
        if self.0.next().await.is_none() {
            // Watches do not end. After an end there would be no further change.
            std::future::pending::<()>().await;
        }
        let quiet = tokio::time::sleep(TOGETHER);
        tokio::pin!(quiet);
        loop {
            tokio::select! {
                () = &mut quiet => return,
                Some(()) = self.0.next() => {}
                else => return,
            }
        }
    }
}

/// A signal for each change of these objects. A failed watch is retried with back-off.
fn changes<K>(api: Api<PartialObjectMeta<K>>, config: Config) -> BoxStream<'static, ()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let events = watcher(api, config).default_backoff();
    let changes = events.try_filter_map(|event| async move {
        // A list starts with `Init`, which is no change. Its end may reveal deleted objects.
        Ok((!matches!(event, Watched::Init)).then_some(()))
    });
    changes.filter_map(|event| async move { event.ok() }).boxed()
}
