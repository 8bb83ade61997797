//! Compares the CustomResourceDefinition on the API server with that of this build. An API server drops unknown fields
//! silently: with an older CRD, it would forget what the controller counts.

use std::time::Duration;

use anyhow::bail;
use http::Request;
use jobset_api::schema::Fields;
use jobset_api::{GROUP, VERSION};
use kube::Client;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::retry_log::RetryLog;

/// The object of the requests, for the log.
const WHAT: &str = "schema of JobSets";
/// Time between two reads.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest time in which an API server publishes a CRD that has just been installed or changed.
const PUBLISHED: Duration = Duration::from_secs(10);

/// Waits until the CRD is installed, and compares it with the fields that this build reads and writes.
///
/// # Errors
/// If the API server would drop a field.
pub(super) async fn check(client: &Client) -> anyhow::Result<()> {
    let deadline = Instant::now() + PUBLISHED;
    let (mut retry_log, mut warned) = (RetryLog::default(), false);
    loop {
        let is_late = Instant::now() >= deadline;
        match fields(client).await {
            Err(error) => retry_log.failed(WHAT, &error),
            Ok(None) if is_late && !warned => {
                warned = true;
                let crd = format!("jobsets.{GROUP}");
                warn!(crd, "the CustomResourceDefinition is not installed, waiting for it");
            }
            Ok(None) => retry_log.succeeded(WHAT),
            Ok(Some(live)) => {
                retry_log.succeeded(WHAT);
                let missing = Fields::missing_in(&live);
                if missing.is_empty() {
                    return Ok(());
                }
                if is_late {
                    bail!(
                        "the CustomResourceDefinition jobsets.{GROUP} is older than this controller, and the API server would \
                         drop {}: apply that of this version",
                        missing.join(", ")
                    );
                }
            }
        }
        sleep(PERIOD).await;
    }
}

/// The fields of a JobSet on the API server; `None` if it has no JobSets.
async fn fields(client: &Client) -> kube::Result<Option<Fields>> {
    let index = get(client, "/openapi/v3").await?;
    let document = &index["paths"][format!("apis/{GROUP}/{VERSION}")]["serverRelativeURL"];
    let Some(document) = document.as_str() else { return Ok(None) };
    let document = get(client, document).await?;
    let mut schemas = document["components"]["schemas"].as_object().into_iter().flat_map(|schemas| schemas.values());
    let jobset = schemas.find(|schema| schema["x-kubernetes-group-version-kind"][0]["kind"] == "JobSet");
    jobset.map(Fields::deserialize).transpose().map_err(kube::Error::SerdeError)
}

async fn get(client: &Client, path: &str) -> kube::Result<Value> {
    client.request(Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?).await
}
