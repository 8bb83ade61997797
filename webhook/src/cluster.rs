//! Whether the cluster can restart Pods in place, as far as its API server's version tells. What its nodes can do, the
//! controller says in a condition.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;
use tracing::debug;

/// Minor version of Kubernetes 1 whose API servers know container restart rules with `RestartAllContainers` (KEP-5532).
const MINOR: u32 = 36;
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

    /// A cluster that lacks this.
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

/// A version that cannot be read lacks nothing.
fn lacks(version: &Info) -> Option<String> {
    let minor: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
    let old = version.major == "1" && minor.parse::<u32>().is_ok_and(|minor| minor < MINOR);
    old.then(|| {
        format!(
            "the API server is {}: to restart Pods in place needs Kubernetes 1.{MINOR}, or 1.35 with the feature gate \
             RestartAllContainersOnContainerExits; without it they wait, or are replaced",
            version.git_version
        )
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1", "34", true)]
    #[case("1", "35+", true)]
    #[case("1", "36", false)]
    #[case("1", "37+", false)]
    #[case("2", "0", false)]
    #[case("1", "", false)]
    fn an_api_server_before_1_36_is_named(#[case] major: &str, #[case] minor: &str, #[case] named: bool) {
        let git_version = format!("v{major}.{minor}.1");
        let version = Info { major: major.to_owned(), minor: minor.to_owned(), git_version, ..Info::default() };
        let text = lacks(&version);
        assert_eq!(text.is_some(), named);
        assert!(text.is_none_or(|text| text.contains(&version.git_version) && text.len() < 256));
    }
}
