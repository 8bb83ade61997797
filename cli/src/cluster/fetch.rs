//! Reads JobSets with their Jobs, Pods and Events.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jobset_api::{JobSet, dialect, labels};
use jobset_objects::{PartialJob, PartialPod};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::connect::Cluster;
use crate::error::Error;
use crate::restarts::RestartEvent;

/// Kind of a JobSet in an Event's reference.
pub(super) const KIND: &str = "JobSet";
/// Objects per page of a list.
const PAGE: u32 = 500;
/// Time limit for a completion, for which a user waits at the keyboard.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(3);

/// The JobSet with epochs as this project counts them, also if the Go JobSet's agents restart it.
fn decoded(mut jobset: JobSet) -> JobSet {
    if let Some(status) = &mut jobset.status {
        dialect::decode(status);
    }
    jobset
}

impl Cluster {
    pub async fn jobset(&self, name: &str) -> Result<JobSet, Error> {
        let api: Api<JobSet> = self.api();
        api.get(name).await.map(decoded).map_err(|error| self.not_found(name, error))
    }

    fn not_found(&self, name: &str, error: kube::Error) -> Error {
        match error {
            kube::Error::Api(status) if status.code == 404 => {
                // The API server names the missing object only if it serves the kind.
                let serves_kind = status.details.as_ref().is_some_and(|details| details.name == name);
                if serves_kind {
                    Error::NotFound { name: name.to_owned(), namespace: self.namespace.clone() }
                } else {
                    Error::NoKind
                }
            }
            error => Error::request(format!("read JobSet {}/{name}", self.namespace), error),
        }
    }

    /// The JobSets of the namespace or of all namespaces, all of them or those that a label selector selects.
    pub async fn jobsets(&self, all_namespaces: bool, selector: Option<&str>) -> Result<Vec<JobSet>, Error> {
        let api: Api<JobSet> = if all_namespaces { Api::all(self.client.clone()) } else { self.api() };
        let place = if all_namespaces { "all namespaces".to_owned() } else { format!("namespace {}", self.namespace) };
        let params = ListParams { label_selector: selector.map(str::to_owned), ..ListParams::default() };
        match all(&api, &params, &format!("list JobSets in {place}")).await {
            Err(Error::Request { source, .. }) if matches!(&*source, kube::Error::Api(status) if status.code == 404) => {
                Err(Error::NoKind)
            }
            listed => Ok(listed?.into_iter().map(decoded).collect()),
        }
    }

    pub async fn jobs(&self, jobset: &str) -> Result<Vec<Arc<PartialJob>>, Error> {
        self.children(jobset, None, "Jobs").await
    }

    pub async fn pods(&self, jobset: &str) -> Result<Vec<Arc<PartialPod>>, Error> {
        self.children(jobset, None, "Pods").await
    }

    /// The Jobs or Pods of a JobSet, all of them or those that also have these labels.
    pub(super) async fn children<K>(
        &self,
        jobset: &str,
        selector: Option<&str>,
        kind: &str,
    ) -> Result<Vec<Arc<K>>, Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let what = format!("list the {kind} of JobSet {}/{jobset}", self.namespace);
        let mut params = children(jobset);
        if let (Some(of_jobset), Some(selector)) = (&mut params.label_selector, selector) {
            of_jobset.extend([",", selector]);
        }
        let listed: Vec<K> = all(&self.api(), &params, &what).await?;
        Ok(listed.into_iter().map(Arc::new).collect())
    }

    /// The controller's Events about restarts of this JobSet. Events of an earlier JobSet of the same name are left out.
    pub async fn restart_events(&self, jobset: &JobSet) -> Result<Vec<RestartEvent>, Error> {
        let (name, uid) = (jobset.name_any(), jobset.uid().unwrap_or_default());
        let selector = about(&name, &uid);
        let api: Api<Event> = self.api();
        let what = format!("list the Events of JobSet {}/{name}", self.namespace);
        let events = all(&api, &ListParams::default().fields(&selector), &what).await?;
        Ok(events.iter().filter_map(RestartEvent::of).collect())
    }

    /// Names of JobSets for completion; none if the request fails.
    pub async fn jobset_names(&self) -> Vec<String> {
        names(&self.api::<PartialObjectMeta<JobSet>>()).await
    }

    /// Names of namespaces for completion; none if the request fails.
    pub async fn namespace_names(&self) -> Vec<String> {
        names(&Api::<PartialObjectMeta<Namespace>>::all(self.client.clone())).await
    }
}

/// All objects that the parameters select. If the list expires between two pages (410), it is read once more from the start.
/// Pages keep the text of a whole list out of the memory of the API server and of the plugin.
pub(super) async fn all<K>(api: &Api<K>, params: &ListParams, what: &str) -> Result<Vec<K>, Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut may_restart = true;
    let mut params = params.clone().limit(PAGE);
    let mut items = Vec::new();
    loop {
        match api.list(&params).await {
            Ok(page) => {
                items.extend(page.items);
                params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
                if params.continue_token.is_none() {
                    return Ok(items);
                }
            }
            Err(kube::Error::Api(status)) if status.code == 410 && may_restart => {
                (may_restart, params.continue_token) = (false, None);
                items.clear();
            }
            Err(error) => return Err(Error::request(what, error)),
        }
    }
}

async fn names<K>(api: &Api<PartialObjectMeta<K>>) -> Vec<String>
where
    K: Clone + Debug + DeserializeOwned + Resource,
{
    let params = ListParams::default();
    let listed = tokio::time::timeout(COMPLETION_TIMEOUT, api.list_metadata(&params)).await;
    let items = listed.ok().and_then(Result::ok).map(|list| list.items).unwrap_or_default();
    items.iter().filter_map(|item| item.metadata.name.clone()).collect()
}

/// Selects the Jobs and Pods of a JobSet.
pub(super) fn children(jobset: &str) -> ListParams {
    ListParams::default().labels(&format!("{}={jobset}", labels::JOBSET_NAME))
}

/// Selects Events about a JobSet, but not about an earlier JobSet of the same name.
pub(super) fn about(name: &str, uid: &str) -> String {
    format!("regarding.kind={KIND},regarding.name={name},regarding.uid={uid}")
}
