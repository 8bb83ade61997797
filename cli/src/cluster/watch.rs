//! Tells when something has changed, so that a report is made anew. Only metadata is watched: what has changed is read by
//! whoever asks.

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

/// Changes that come within this time of each other are shown together.
const TOGETHER: Duration = Duration::from_millis(200);

/// What is watched.
#[derive(Clone, Debug)]
pub enum Scope {
    /// All JobSets of the namespace.
    List,
    /// All JobSets of all namespaces.
    Everywhere,
    /// A JobSet with its Jobs and Pods.
    Tree(String),
    /// A JobSet with the Events about it.
    Events(Box<JobSet>),
}

/// Changes, as they come.
pub struct Changes(BoxStream<'static, ()>);

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Changes")
    }
}

impl Changes {
    /// Begins to watch. What is there already is a change, too: nothing is missed between a first look and this.
    pub fn begin(cluster: &Cluster, scope: &Scope) -> Self {
        let here: Api<PartialObjectMeta<JobSet>> = cluster.metadata();
        let named = |name: &str| Config::default().fields(&format!("metadata.name={name}"));
        let streams = match scope {
            Scope::List => vec![changes(here, Config::default())],
            Scope::Everywhere => {
                vec![changes(Api::<PartialObjectMeta<JobSet>>::all(cluster.client.clone()), Config::default())]
            }
            Scope::Tree(name) => {
                let selector = children(name).label_selector.unwrap_or_default();
                let config = || Config::default().labels(&selector);
                vec![
                    changes(here, named(name)),
                    changes(cluster.metadata::<Job>(), config()),
                    changes(cluster.metadata::<Pod>(), config()),
                ]
            }
            Scope::Events(jobset) => {
                let name = jobset.name_any();
                let selector = about(&name, &jobset.uid().unwrap_or_default());
                vec![
                    changes(here, named(&name)),
                    changes(cluster.metadata::<Event>(), Config::default().fields(&selector)),
                ]
            }
        };
        Self(select_all(streams).boxed())
    }

    /// Waits for the next change, and a moment more for those that come with it.
    pub async fn next(&mut self) {
        if self.0.next().await.is_none() {
            // Watches have no end. If they had, nothing would ever change again.
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

/// One for each change of these objects. What the API server refuses for a while is tried again, ever more slowly.
fn changes<K>(api: Api<PartialObjectMeta<K>>, config: Config) -> BoxStream<'static, ()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let events = watcher(api, config).default_backoff();
    let told = events.try_filter_map(|event| async move {
        // The start of a list shows nothing; its end may show that something is gone.
        Ok((!matches!(event, Watched::Init)).then_some(()))
    });
    told.filter_map(|event| async move { event.ok() }).boxed()
}
