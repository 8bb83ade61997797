//! The objects of JobSets by watches: one watch per kind. [`crate::mirror`] keeps what they observe.

use std::fmt::Debug;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll, select_all};
use jobset_api::labels;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::events::v1::Event;
use kube::core::Status;
use kube::runtime::watcher::Config;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::connect::Cluster;
use super::fetch::{KIND, children};
use crate::error::Error;
use crate::mirror::{ObjectKind, WatchEvent};

/// Objects per page of a list. A page of Pods of 11 kB takes some megabytes while it is parsed.
const PAGE: u32 = 200;

/// The JobSets that are watched, with their Jobs and Pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedScope {
    Named(String),
    Namespace,
    AllNamespaces,
}

pub struct Feed(SelectAll<BoxStream<'static, WatchEvent>>);

impl Feed {
    /// Starts to watch JobSets, Jobs and Pods.
    pub fn begin(cluster: &Cluster, scope: &FeedScope) -> Self {
        let (jobsets, children) = configs(scope);
        Self(select_all([
            observed(api(cluster, scope), jobsets, ObjectKind::JobSet, WatchEvent::JobSet),
            observed(api(cluster, scope), children.clone(), ObjectKind::Job, WatchEvent::Job),
            observed(api(cluster, scope), children, ObjectKind::Pod, WatchEvent::Pod),
        ]))
    }

    /// Starts to watch the Events about these JobSets, too.
    #[must_use]
    pub fn and_events(mut self, cluster: &Cluster, scope: &FeedScope) -> Self {
        let about = match scope {
            FeedScope::Named(name) => format!("regarding.kind={KIND},regarding.name={name}"),
            _ => format!("regarding.kind={KIND}"),
        };
        let config = Config::default().page_size(PAGE).fields(&about);
        self.0.push(observed(api::<Event>(cluster, scope), config, ObjectKind::Event, WatchEvent::Event));
        self
    }

    /// Waits for the next event. Failed watches are retried with back-off, so there is always a next one.
    pub async fn next(&mut self) -> WatchEvent {
        match self.0.next().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }
}

/// How JobSets and how their children are watched.
fn configs(scope: &FeedScope) -> (Config, Config) {
    let paged = || Config::default().page_size(PAGE);
    match scope {
        FeedScope::Named(name) => {
            let selector = children(name).label_selector.unwrap_or_default();
            (paged().fields(&format!("metadata.name={name}")), paged().labels(&selector))
        }
        _ => (paged(), paged().labels(labels::JOBSET_NAME)),
    }
}

fn api<K>(cluster: &Cluster, scope: &FeedScope) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match scope {
        FeedScope::AllNamespaces => Api::all(cluster.client.clone()),
        _ => cluster.api(),
    }
}

fn observed<K>(
    api: Api<K>,
    config: Config,
    kind: ObjectKind,
    wrap: fn(watcher::Event<K>) -> WatchEvent,
) -> BoxStream<'static, WatchEvent>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let events = watcher(api, config).default_backoff();
    events
        .map(move |event| match event {
            Ok(event) => wrap(event),
            Err(error) => WatchEvent::Failed(kind, failed(kind, source(error)), Instant::now()),
        })
        .boxed()
}

fn failed(kind: ObjectKind, error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status) if status.code == 404 && kind == ObjectKind::JobSet => Error::NoKind,
        error => Error::request(format!("watch {}", kind.plural()), error),
    }
}

/// The request's error that is the cause of a watch's error.
fn source(error: watcher::Error) -> kube::Error {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => error,
        watcher::Error::WatchError(status) => kube::Error::Api(status),
        error @ watcher::Error::NoResourceVersion => {
            kube::Error::Api(Status::failure(&error.to_string(), "NoResourceVersion").boxed())
        }
    }
}
