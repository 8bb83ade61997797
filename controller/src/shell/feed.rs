//! The watches: one for each kind, all into one stream.

use std::fmt::Debug;
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
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, ExponentialBackoff, watcher};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use tracing::{debug, warn};

use super::retry_log::RetryLog;
use crate::engine::pods::PodView;
use crate::engine::{JobView, Key, Kind, OwnedView, PartialNamespace, View, WatchEvent, version};

/// The events of all watches. The stream does not end: what fails is watched again, with back-off.
///
/// Lists are consistent reads (no resourceVersion), never what a cache happens to hold.
pub(super) fn feed(client: &Client, namespace: Option<&str>) -> BoxStream<'static, WatchEvent> {
    let all = watcher::Config::default();
    let children = watcher::Config::default().labels(labels::JOBSET_NAME);
    stream::select_all([
        watch(api(client, namespace), all.clone(), Kind::JobSet, read_jobset),
        watch(api(client, namespace), children.clone(), Kind::Job, |job: Job| {
            child(&job, View::Job(JobView::of(&job)))
        }),
        watch(api(client, namespace), children.clone(), Kind::Pod, |pod: PartialPod| {
            child(&pod, View::Pod(PodView::of(&pod)))
        }),
        watch(api::<Service>(client, namespace), children.clone(), Kind::Service, owned(Kind::Service)),
        watch(api::<PersistentVolumeClaim>(client, namespace), children.clone(), Kind::Claim, owned(Kind::Claim)),
        watch(api::<RoleBinding>(client, namespace), children, Kind::RoleBinding, owned(Kind::RoleBinding)),
        watch(Api::all(client.clone()), all.clone(), Kind::Node, |node: PartialNode| {
            WatchEvent::shared(Key::of(&node), View::Node(Box::new(node)))
        }),
        watch(Api::all(client.clone()), all.clone(), Kind::Namespace, |namespace: PartialNamespace| {
            WatchEvent::shared(Key::of(&namespace), View::Namespace(Box::new(namespace)))
        }),
        watch(Api::all(client.clone()), all, Kind::PriorityClass, |class: PriorityClass| {
            WatchEvent::shared(Key::of(&class), View::PriorityClass(Box::new(class)))
        }),
    ])
    .boxed()
}

/// Lists the objects of one JobSet.
///
/// # Errors
/// If a list fails.
pub(super) async fn list(client: &Client, key: &Key) -> kube::Result<Vec<WatchEvent>> {
    let namespace = Some(&key.namespace[..]);
    let jobsets = Api::<DeserializeGuard<JobSet>>::namespaced(client.clone(), &key.namespace);
    let labelled = ListParams::default().labels(&format!("{}={}", labels::JOBSET_NAME, key.name));
    let of_name = ListParams::default().fields(&format!("metadata.name={}", key.name));
    let mut events: Vec<WatchEvent> = jobsets.list(&of_name).await?.items.into_iter().map(read_jobset).collect();
    let job = |job: Job| child(&job, View::Job(JobView::of(&job)));
    let pod = |pod: PartialPod| child(&pod, View::Pod(PodView::of(&pod)));
    events.extend(api(client, namespace).list(&labelled).await?.items.into_iter().map(job));
    events.extend(api(client, namespace).list(&labelled).await?.items.into_iter().map(pod));
    let services = api::<Service>(client, namespace).list(&labelled).await?;
    events.extend(services.items.into_iter().map(owned(Kind::Service)));
    let claims = api::<PersistentVolumeClaim>(client, namespace).list(&labelled).await?;
    events.extend(claims.items.into_iter().map(owned(Kind::Claim)));
    let bindings = api::<RoleBinding>(client, namespace).list(&labelled).await?;
    events.extend(bindings.items.into_iter().map(owned(Kind::RoleBinding)));
    Ok(events)
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
    kind: Kind,
    put: impl Fn(K) -> WatchEvent + Send + 'static,
) -> BoxStream<'static, WatchEvent>
where
    K: kube::Resource + Clone + Debug + Send + DeserializeOwned + 'static,
    K::DynamicType: Default,
{
    let (mut retry_log, name) = (RetryLog::default(), kind.name());
    watcher(api, config)
        .backoff(watch_backoff())
        .filter_map(move |event| {
            match &event {
                Ok(_) => retry_log.succeeded(name),
                // The watch was away for too long, and lists anew.
                Err(watcher::Error::WatchError(status)) if status.code == 410 => debug!(kind = name, "listing again"),
                Err(error) => retry_log.failed(name, error),
            }
            let event = event.ok().map(|event| match event {
                Event::Apply(object) | Event::InitApply(object) => put(object),
                Event::Delete(object) => WatchEvent::Gone(kind, Key::of(&object), version(&object)),
                Event::Init => WatchEvent::ListingBegins(kind),
                Event::InitDone => WatchEvent::ListingEnded(kind),
            });
            std::future::ready(event)
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

/// A child. It belongs to the JobSet that its label names.
fn child(object: &impl ResourceExt, view: View) -> WatchEvent {
    let key = Key::of(object);
    let owner = object.labels().get(labels::JOBSET_NAME).map(|name| key.sibling(name));
    WatchEvent::Put { object: key, owner, view }
}

fn owned<K: ResourceExt>(kind: Kind) -> impl Fn(K) -> WatchEvent {
    move |object| child(&object, View::Owned(kind, OwnedView::of(&object)))
}

/// Keeps the JobSet whole, without the bookkeeping of field managers.
fn read_jobset(read: DeserializeGuard<JobSet>) -> WatchEvent {
    match read.0 {
        Ok(mut jobset) => {
            jobset.metadata.managed_fields = None;
            WatchEvent::jobset(Arc::new(jobset))
        }
        Err(invalid) => {
            let key = Key {
                namespace: invalid.metadata.namespace.unwrap_or_default(),
                name: invalid.metadata.name.unwrap_or_default(),
            };
            warn!(jobset = %key, error = invalid.error, "the JobSet does not match the schema and is ignored");
            WatchEvent::Gone(Kind::JobSet, key, 0)
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
