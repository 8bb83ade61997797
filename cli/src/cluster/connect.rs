//! From the command line to a client.

use std::time::Duration;

use kube::api::PartialObjectMeta;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;

use crate::args::Global;
use crate::error::Error;
use crate::names;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// The namespace where the context names none.
const DEFAULT: &str = "default";

/// A cluster, and the namespace of it that is looked at.
#[derive(Clone)]
pub struct Cluster {
    pub(super) client: Client,
    /// The namespace asked for, or else that of the context.
    pub namespace: String,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// A client of the cluster that the kubeconfig names, or of the one that this runs in.
///
/// # Errors
/// If there is no kubeconfig, or it is not usable. Nothing is requested yet.
pub async fn connect(global: &Global) -> Result<Cluster, Error> {
    let mut config = config(global).await?;
    config.connect_timeout = Some(CONNECT);
    let namespace = match &global.namespace {
        Some(namespace) => namespace.clone(),
        None => of_context(&config.default_namespace)?,
    };
    let client = Client::try_from(config).map_err(|error| Error::Kubeconfig(error.into()))?;
    Ok(Cluster { client, namespace })
}

/// The namespace of the kubeconfig's context. An empty one is none, as for `kubectl`.
fn of_context(namespace: &str) -> Result<String, Error> {
    let namespace = if namespace.is_empty() { DEFAULT } else { namespace };
    names::namespace(namespace)
        .map_err(|message| Error::Kubeconfig(format!("namespace {namespace:?} of its context: {message}").into()))
}

async fn config(global: &Global) -> Result<Config, Error> {
    let options = KubeConfigOptions { context: global.context.clone(), ..KubeConfigOptions::default() };
    let read = match &global.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None if global.context.is_some() => Kubeconfig::read(),
        None => return Config::infer().await.map_err(|error| Error::Kubeconfig(error.into())),
    };
    let kubeconfig = read.map_err(|error| Error::Kubeconfig(error.into()))?;
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| Error::Kubeconfig(error.into()))
}

impl Cluster {
    /// Objects of a kind in the namespace.
    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The same, of which only the metadata is asked for.
    pub(super) fn metadata<K>(&self) -> Api<PartialObjectMeta<K>>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}
