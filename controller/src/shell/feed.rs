//! The watches: one for each kind, all into one stream.

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::time::Duration;

use backon::ExponentialBuilder;
use futures::stream::{self, BoxStream, StreamExt};
use jobset_api::labels;
use jobset_objects::{PartialJob, PartialMetadata, PartialNode, PartialPod};
use jobset_store::pods::PodView;
use jobset_store::{JobView, Key, Kind, OwnedView, PartialNamespace, View, WatchEvent, version};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, ExponentialBackoff, watcher};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;

use super::retry_log::RetryLog;

/// Objects of a page of a list. Tenants write these objects, each up to 1.5 MB; the client holds the page twice while it reads it,
/// which is some 100 MB.
const PAGE: u32 = 32;
/// Objects of a page of a list of Nodes or PriorityClasses, which no tenant writes.
const PAGE_OF_CLUSTER: u32 = 500;

/// The events of all watches. The stream does not end: each watch is retried with back-off.
///
/// Lists are consistent reads (no resourceVersion). The cache of an API server may be outdated.
pub(super) fn feed(client: &Client, namespace: Option<&str>) -> BoxStream<'static, WatchEvent> {
    let all = watcher::Config::default().page_size(PAGE);
    let children = all.clone().labels(labels::JOBSET_NAME);
    let of_cluster = watcher::Config::default().page_size(PAGE_OF_CLUSTER);
    stream::select_all([
        watch(api(client, namespace), all.clone(), Kind::JobSet, WatchEvent::stored_jobset),
        watch(api(client, namespace), children.clone(), Kind::Job, child(job)),
        watch(api(client, namespace), children.clone(), Kind::Pod, child(pod)),
        watch(metadata::<Service>(client, namespace), children.clone(), Kind::Service, child(owned(Kind::Service))),
        watch(
            metadata::<PersistentVolumeClaim>(client, namespace),
            children.clone(),
            Kind::Claim,
            child(owned(Kind::Claim)),
        ),
        watch(metadata::<RoleBinding>(client, namespace), children, Kind::RoleBinding, child(owned(Kind::RoleBinding))),
        watch(Api::all(client.clone()), of_cluster.clone(), Kind::Node, |node: PartialNode| {
            WatchEvent::shared(Key::of(&node), View::Node(Box::new(node)))
        }),
        watch(Api::all(client.clone()), all, Kind::Namespace, |namespace: PartialNamespace| {
            WatchEvent::shared(Key::of(&namespace), View::Namespace(Box::new(namespace)))
        }),
        watch(Api::all(client.clone()), of_cluster, Kind::PriorityClass, |class: PriorityClass| {
            WatchEvent::shared(Key::of(&class), View::PriorityClass(Box::new(class)))
        }),
    ])
    .boxed()
}

/// Lists the objects of one JobSet.
pub(super) async fn list(client: &Client, key: &Key) -> kube::Result<Vec<WatchEvent>> {
    let this = ListParams::default().fields(&format!("metadata.name={}", key.name));
    let children = ListParams::default().labels(&format!("{}={}", labels::JOBSET_NAME, key.name));
    let namespace = &key.namespace[..];
    let (jobsets, jobs, pods, services, claims, bindings) = tokio::try_join!(
        list_kind(client, namespace, &this, WatchEvent::stored_jobset),
        list_kind(client, namespace, &children, child(job)),
        list_kind(client, namespace, &children, child(pod)),
        list_kind::<PartialMetadata<Service>>(client, namespace, &children, child(owned(Kind::Service))),
        list_kind::<PartialMetadata<PersistentVolumeClaim>>(client, namespace, &children, child(owned(Kind::Claim))),
        list_kind::<PartialMetadata<RoleBinding>>(client, namespace, &children, child(owned(Kind::RoleBinding))),
    )?;
    Ok([jobsets, jobs, pods, services, claims, bindings].concat())
}

async fn list_kind<K>(
    client: &Client,
    namespace: &str,
    params: &ListParams,
    read: impl Fn(K) -> WatchEvent,
) -> kube::Result<Vec<WatchEvent>>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let (api, mut params, mut listed) = (api(client, Some(namespace)), params.clone().limit(PAGE), Vec::new());
    loop {
        let page = api.list(&params).await?;
        listed.extend(page.items.into_iter().map(&read));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(listed),
        }
    }
}

/// The metadata alone of objects of this kind.
fn metadata<K>(client: &Client, namespace: Option<&str>) -> Api<PartialMetadata<K>>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    api(client, namespace)
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    namespace.map_or_else(|| Api::all(client.clone()), |namespace| Api::namespaced(client.clone(), namespace))
}

fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    kind: Kind,
    read: impl Fn(K) -> WatchEvent + Send + 'static,
) -> BoxStream<'static, WatchEvent>
where
    K: kube::Resource + Clone + Debug + Send + DeserializeOwned + 'static,
    K::DynamicType: Default,
{
    let mut retry_log = RetryLog::default();
    watcher(api, config)
        .backoff(watch_backoff())
        .filter_map(move |event| {
            retry_log.watched(kind.name(), &event);
            let event = event.ok().map(|event| match event {
                Event::Apply(object) | Event::InitApply(object) => read(object),
                Event::Delete(object) => WatchEvent::Gone(kind, Key::of(&object), version(&object)),
                Event::Init => WatchEvent::ListingBegins(kind),
                Event::InitDone => WatchEvent::ListingEnded(kind),
            });
            std::future::ready(event)
        })
        .boxed()
}

/// Doubles from 100..200 ms to 2.5..5 s. The longest delay is short, so that a restart does not wait for long once the API server
/// answers again.
pub(super) fn watch_backoff() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_millis(2500))
        .with_jitter()
        .without_max_times()
        .into()
}

/// A child. It belongs to the JobSet that its label names.
fn child<K: ResourceExt>(view: impl Fn(K) -> View) -> impl Fn(K) -> WatchEvent {
    move |object| {
        let key = Key::of(&object);
        let owner = object.labels().get(labels::JOBSET_NAME).map(|name| key.sibling(name));
        WatchEvent::Put { object: key, owner, view: view(object) }
    }
}

fn job(job: PartialJob) -> View {
    View::Job(JobView::of(job))
}

#[expect(clippy::needless_pass_by_value, reason = "a reader gets the object")]
fn pod(pod: PartialPod) -> View {
    View::Pod(PodView::of(&pod))
}

fn owned<K: ResourceExt>(kind: Kind) -> impl Fn(K) -> View {
    move |object| View::Owned(kind, OwnedView::of(&object))
}
