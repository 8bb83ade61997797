//! The watches: one for each kind, all into one stream.

use std::collections::HashSet;
use std::fmt::Debug;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBuilder;
use futures::stream::{self, BoxStream, StreamExt};
use jobset_api::{JobSet, labels};
use jobset_objects::{PartialNode, PartialPod};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, ExponentialBackoff, watcher};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use tracing::{debug, warn};

use super::retry_log::RetryLog;
use crate::store::pods::PodView;
use crate::store::{Change, ClaimView, JobView, Key, NamespaceWire, RoleBindingView, ServiceView, WatchEvent, version};

/// The stream of everything seen. It does not end: what fails is watched again, with backoff.
///
/// Lists are consistent reads (no resourceVersion), never what some cache happens to hold.
pub(super) fn feed(client: &Client, namespace: Option<&str>) -> BoxStream<'static, WatchEvent> {
    let children = watcher::Config::default().labels(labels::JOBSET_NAME);
    stream::select_all([
        watch(api(client, namespace), watcher::Config::default(), "JobSet", |event| {
            WatchEvent::JobSet(change(event, read_jobset))
        }),
        watch(api(client, namespace), children.clone(), "Job", |event: Event<Job>| {
            WatchEvent::Job(change(event, |object| child(&object, JobView::of)))
        }),
        watch(api(client, namespace), children.clone(), "Pod", |event: Event<PartialPod>| {
            WatchEvent::Pod(change(event, |object| child(&object, PodView::of)))
        }),
        watch(api(client, namespace), children.clone(), "Service", |event: Event<Service>| {
            WatchEvent::Service(change(event, |object| child(&object, ServiceView::of)))
        }),
        watch(
            api(client, namespace),
            children.clone(),
            "PersistentVolumeClaim",
            |event: Event<PersistentVolumeClaim>| {
                WatchEvent::Claim(change(event, |object| child(&object, ClaimView::of)))
            },
        ),
        watch(api(client, namespace), children, "RoleBinding", |event: Event<RoleBinding>| {
            WatchEvent::RoleBinding(change(event, |object| child(&object, RoleBindingView::of)))
        }),
        watch(Api::all(client.clone()), watcher::Config::default(), "Node", |event: Event<PartialNode>| {
            WatchEvent::Node(change(event, cluster_wide))
        }),
        watch(Api::all(client.clone()), watcher::Config::default(), "Namespace", |event: Event<NamespaceWire>| {
            WatchEvent::Namespace(change(event, cluster_wide))
        }),
        watch(Api::all(client.clone()), watcher::Config::default(), "PriorityClass", |event: Event<PriorityClass>| {
            WatchEvent::PriorityClass(change(event, cluster_wide))
        }),
    ])
    .boxed()
}

/// Number of kinds that are watched.
const KINDS: usize = 9;

/// The kinds that have been listed in full. Before all have, what is missing from the store may exist.
#[derive(Default)]
pub(super) struct Listed(HashSet<Discriminant<WatchEvent>>);

impl Listed {
    /// Notes the end of a listing.
    pub(super) fn note(&mut self, seen: &WatchEvent) {
        let ended = match seen {
            WatchEvent::JobSet(change) => matches!(change, Change::ListingEnded),
            WatchEvent::Job(change) => matches!(change, Change::ListingEnded),
            WatchEvent::Pod(change) => matches!(change, Change::ListingEnded),
            WatchEvent::Service(change) => matches!(change, Change::ListingEnded),
            WatchEvent::Claim(change) => matches!(change, Change::ListingEnded),
            WatchEvent::RoleBinding(change) => matches!(change, Change::ListingEnded),
            WatchEvent::Node(change) => matches!(change, Change::ListingEnded),
            WatchEvent::Namespace(change) => matches!(change, Change::ListingEnded),
            WatchEvent::PriorityClass(change) => matches!(change, Change::ListingEnded),
        };
        if ended {
            self.0.insert(discriminant(seen));
        }
    }

    /// Whether the store is complete.
    pub(super) fn all(&self) -> bool {
        self.0.len() == KINDS
    }
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
{
    namespace.map_or_else(|| Api::all(client.clone()), |namespace| Api::namespaced(client.clone(), namespace))
}

fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    kind: &'static str,
    reduce: fn(Event<K>) -> WatchEvent,
) -> BoxStream<'static, WatchEvent>
where
    K: kube::Resource + Clone + Debug + Send + DeserializeOwned + 'static,
    K::DynamicType: Default,
{
    let mut retry_log = RetryLog::default();
    watcher(api, config)
        .backoff(watch_backoff())
        .filter_map(move |event| {
            match &event {
                Ok(_) => retry_log.succeeded(kind),
                // The watch was away for too long, and lists anew.
                Err(watcher::Error::WatchError(status)) if status.code == 410 => debug!(kind, "listing again"),
                Err(error) => retry_log.failed(kind, error),
            }
            std::future::ready(event.ok().map(reduce))
        })
        .boxed()
}

/// Doubles from 100..200 ms to 2.5..5 s. The longest delay is short, so that a group that restarts does not wait for long
/// once the API server is back.
fn watch_backoff() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_millis(2500))
        .with_jitter()
        .without_max_times()
        .into()
}

fn change<K: ResourceExt, V>(event: Event<K>, put: impl Fn(K) -> Change<V>) -> Change<V> {
    match event {
        Event::Apply(object) | Event::InitApply(object) => put(object),
        Event::Delete(object) => Change::Gone(Key::of(&object), version(&object)),
        Event::Init => Change::ListingBegins,
        Event::InitDone => Change::ListingEnded,
    }
}

/// A child, owned by the JobSet that its label names.
fn child<K: ResourceExt, V>(object: &K, view: impl Fn(&K) -> V) -> Change<V> {
    let namespace = object.namespace().unwrap_or_default();
    let owner = object.labels().get(labels::JOBSET_NAME).map(|name| Key { namespace, name: name.clone() });
    Change::Put { object: Key::of(object), owner, view: view(object) }
}

/// A JobSet is kept whole, but for the bookkeeping of field managers, and is its own owner.
fn put_jobset(mut jobset: JobSet) -> Change<Arc<JobSet>> {
    jobset.metadata.managed_fields = None;
    let key = Key::of(&jobset);
    Change::Put { object: key.clone(), owner: Some(key), view: Arc::new(jobset) }
}

/// An object that belongs to no JobSet, and concerns any.
fn cluster_wide<K: ResourceExt>(object: K) -> Change<Box<K>> {
    Change::Put { object: Key::of(&object), owner: None, view: Box::new(object) }
}

fn read_jobset(read: DeserializeGuard<JobSet>) -> Change<Arc<JobSet>> {
    match read.0 {
        Ok(jobset) => put_jobset(jobset),
        Err(invalid) => {
            let key = Key {
                namespace: invalid.metadata.namespace.unwrap_or_default(),
                name: invalid.metadata.name.unwrap_or_default(),
            };
            warn!(jobset = %key, error = invalid.error, "JobSet is not of the schema, left alone");
            Change::Gone(key, 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::utils::Backoff as _;

    use super::*;

    #[test]
    fn watch_backoff_grows_to_seconds_and_restarts_after_a_success() {
        let mut backoff = watch_backoff();
        let waits: Vec<Duration> = backoff.by_ref().take(40).collect();
        assert!(waits[0] <= Duration::from_millis(200) && waits[0] >= Duration::from_millis(100), "{waits:?}");
        assert!(waits[39] <= Duration::from_secs(5) && waits[39] >= Duration::from_millis(2500), "{waits:?}");
        backoff.reset();
        assert!(backoff.next().unwrap() <= Duration::from_millis(200));
    }
}
