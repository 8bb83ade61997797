//! Reads the logs of Pods.

use std::sync::Arc;

use futures::AsyncBufRead;
use jobset_objects::PartialPod;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::LogParams;

use super::connect::Cluster;
use crate::error::Error;

/// The log of one container.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogRequest<'a> {
    pub pod: &'a str,
    pub container: &'a str,
    /// Whether it is that of the run before.
    pub previous: bool,
    pub follow: bool,
    /// The number of last lines; all of them by default.
    pub tail: Option<i64>,
    /// Whether each line begins with its time.
    pub timestamps: bool,
    /// Only lines since this second.
    pub since: Option<Timestamp>,
}

impl Cluster {
    pub async fn log(&self, request: &LogRequest<'_>) -> Result<impl AsyncBufRead + Send + use<>, Error> {
        let LogRequest { pod, container, previous, follow, tail, timestamps, since } = *request;
        let params = LogParams {
            container: Some(container.to_owned()),
            previous,
            follow,
            tail_lines: tail,
            timestamps,
            since_time: since,
            ..LogParams::default()
        };
        let api: Api<Pod> = self.api();
        let what = || format!("read the log of container {container} of Pod {}/{pod}", self.namespace);
        api.log_stream(pod, &params).await.map_err(|error| Error::request(what(), error))
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
