//! Whether the cluster can restart Pods in place, as far as its API server's version tells. What its nodes can do, the
//! controller says in a condition.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jobset_api::in_place::{NEEDS, is_old};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;
use tracing::debug;

/// How often an API server is asked: clusters are upgraded while the service runs.
const INTERVAL: Duration = Duration::from_mins(10);
/// How soon it is asked again when it did not answer.
const RETRY: Duration = Duration::from_secs(10);

/// What is known of the cluster. Until something is, nothing is missing.
#[derive(Clone, Debug, Default)]
pub struct Cluster(Arc<ArcSwapOption<String>>);

impl Cluster {
    /// What keeps it from restarting Pods in place.
    pub fn lacks(&self) -> Option<Arc<String>> {
        self.0.load_full()
    }

    #[cfg(test)]
    pub(crate) fn lacking(text: &str) -> Self {
        Self(Arc::new(ArcSwapOption::from_pointee(text.to_owned())))
    }

    /// Keeps it up to date, for ever.
    pub async fn watch(&self, client: &Client) -> Infallible {
        loop {
            let wait = match client.apiserver_version().await {
                Ok(version) => {
                    self.0.store(lacks(&version).map(Arc::new));
                    INTERVAL
                }
                Err(error) => {
                    debug!(%error, "cannot read the API server's version, will try again");
                    RETRY
                }
            };
            tokio::time::sleep(wait).await;
        }
    }
}

fn lacks(version: &Info) -> Option<String> {
    let version = &version.git_version;
    is_old(version).then(|| format!("the API server is {version}: {NEEDS}; without it Pods wait, or are replaced"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_server_before_1_36_is_named() {
        let lacks = |version: &str| lacks(&Info { git_version: version.to_owned(), ..Info::default() });
        let text = lacks("v1.35.4").unwrap();
        assert!(text.contains("v1.35.4") && text.len() < 256, "{text}");
        assert_eq!(lacks("v1.36.0"), None);
    }
}
