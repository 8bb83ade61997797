//! Reads the logs of Pods.

use std::sync::Arc;

use futures::AsyncBufRead;
use jobset_objects::PartialPod;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;

use super::connect::Cluster;
use crate::error::Error;

impl Cluster {
    pub async fn log(&self, pod: &str, params: &LogParams) -> Result<impl AsyncBufRead + Send + use<>, Error> {
        let container = params.container.as_deref().unwrap_or_default();
        let api: Api<Pod> = self.api();
        let what = || format!("read the log of container {container} of Pod {}/{pod}", self.namespace);
        api.log_stream(pod, params).await.map_err(|error| Error::request(what(), error))
    }

    /// The Pods of a JobSet that also have these labels.
    pub async fn pods_where(&self, jobset: &str, selector: Option<&str>) -> Result<Vec<Arc<PartialPod>>, Error> {
        self.children(jobset, selector, "Pods").await
    }

    /// A Pod of the namespace, if it exists.
    pub async fn pod(&self, name: &str) -> Result<Option<PartialPod>, Error> {
        let api: Api<PartialPod> = self.api();
        let what = || format!("read Pod {}/{name}", self.namespace);
        api.get_opt(name).await.map_err(|error| Error::request(what(), error))
    }
}
