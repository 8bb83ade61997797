//! Requests on the objects of one kind in the namespace of a JobSet.

use std::fmt::Debug;

use jobset_store::{Kind, Versions, version};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Actor, Done};
use crate::shell::error::{ApplyError, CREATE, WRITE_STATUS, is_gone};

pub(super) struct Objects<'a, K> {
    api: Api<K>,
    kind: Kind,
    namespace: &'a str,
}

impl Actor {
    pub(super) fn objects<K>(&self, kind: Kind) -> Objects<'_, K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        let namespace = &self.key.namespace;
        Objects { api: Api::namespaced(self.client.clone(), namespace), kind, namespace }
    }
}

impl<K: ResourceExt + Clone + Debug + DeserializeOwned> Objects<'_, K> {
    /// Namespace and name of an object, for its errors.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    /// An error about the object of this name.
    fn failed(&self, verb: &'static str, name: &str) -> impl FnOnce(kube::Error) -> ApplyError {
        let (kind, object) = (self.kind, self.path(name));
        move |source| ApplyError::Api { verb, kind, object, source }
    }

    pub(super) async fn get(&self, name: &str) -> Result<Option<K>, ApplyError> {
        self.api.get_opt(name).await.map_err(self.failed("read", name))
    }

    pub(super) async fn create(&self, object: &K) -> Result<K, ApplyError>
    where
        K: Serialize,
    {
        self.api.create(&PostParams::default(), object).await.map_err(self.failed(CREATE, &object.name_any()))
    }

    /// Returns `None` if the object with the UID in the patch is gone.
    pub(super) async fn patch<P>(&self, name: &str, patch: &Patch<P>) -> Result<Option<K>, ApplyError>
    where
        P: Serialize + Debug,
    {
        self.unless_gone("change", name, self.api.patch(name, &PatchParams::default(), patch).await)
    }

    /// Returns `None` if the object with the UID in the patch is gone.
    pub(super) async fn patch_status<P>(&self, name: &str, patch: &Patch<P>) -> Result<Option<K>, ApplyError>
    where
        P: Serialize + Debug,
    {
        self.unless_gone("change", name, self.api.patch_status(name, &PatchParams::default(), patch).await)
    }

    /// Deletes an object unless it is gone. Returns the object if it exists until its finalizers are removed.
    pub(super) async fn delete(&self, name: &str, params: &DeleteParams) -> Result<Option<K>, ApplyError> {
        let deleted = self.unless_gone("delete", name, self.api.delete(name, params).await)?;
        let Some(deleted) = deleted else { return Ok(None) };
        Ok(deleted.left())
    }

    pub(super) async fn replace_status(&self, object: &K) -> Result<K, ApplyError>
    where
        K: Serialize,
    {
        let name = object.name_any();
        let written = self.api.replace_status(&name, &PostParams::default(), object).await;
        written.map_err(self.failed(WRITE_STATUS, &name))
    }

    /// The outcome of a request with this answer.
    pub(super) fn written(&self, object: Option<&K>) -> Done {
        Done::Written(object.map_or(Versions::NONE, |object| Versions::of(self.kind, version(object))))
    }

    fn unless_gone<T>(&self, verb: &'static str, name: &str, answer: kube::Result<T>) -> Result<Option<T>, ApplyError> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(self.failed(verb, name)(error)),
        }
    }
}
