//! Makes a client from the command line and the kubeconfig.

use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};

use crate::args::GlobalArgs;
use crate::error::Error;
use crate::names;

/// Time limit for a new connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The namespace if the context has none.
const DEFAULT: &str = "default";

/// A client for the cluster and the selected namespace.
#[derive(Clone)]
pub struct Cluster {
    pub(super) client: Client,
    /// The namespace of `--namespace`, or else of the context.
    pub namespace: String,
}

/// A client for the cluster of the kubeconfig, or, in a Pod, for the cluster of the Pod.
///
/// # Errors
/// If there is no usable kubeconfig. No request is sent yet.
pub async fn connect(global: &GlobalArgs) -> Result<Cluster, Error> {
    let mut config = config(global).await?;
    config.connect_timeout = Some(CONNECT);
    if let Some(user) = &global.as_user {
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups = Some(global.as_group.clone()).filter(|groups| !groups.is_empty());
    }
    let namespace = match &global.namespace {
        Some(namespace) => namespace.clone(),
        None => of_context(&config.default_namespace)?,
    };
    let client = Client::try_from(config).map_err(|error| Error::Kubeconfig(error.into()))?;
    Ok(Cluster { client, namespace })
}

/// The namespace of the kubeconfig's context. As for `kubectl`, an empty name selects the default namespace.
fn of_context(namespace: &str) -> Result<String, Error> {
    let namespace = if namespace.is_empty() { DEFAULT } else { namespace };
    names::namespace(namespace)
        .map_err(|message| Error::Kubeconfig(format!("namespace {namespace:?} of its context: {message}").into()))
}

async fn config(global: &GlobalArgs) -> Result<Config, Error> {
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
    /// A cluster whose API server listens on this address, without TLS.
    #[cfg(test)]
    pub(crate) fn at(address: std::net::SocketAddr, namespace: &str) -> Self {
        let config = Config::new(format!("http://{address}").parse().unwrap());
        Self { client: Client::try_from(config).unwrap(), namespace: namespace.to_owned() }
    }

    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self { client: self.client.clone(), namespace: namespace.to_owned() }
    }

    pub(super) fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}
