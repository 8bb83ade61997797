//! Whether the CustomResourceDefinition on the API server is that of this build. An API server drops fields that it does not
//! know without a word: with an older CRD, what the controller counts would be forgotten.

use std::collections::HashMap;
use std::time::Duration;

use http::Request;
use jobset_api::schema::Fields;
use jobset_api::{GROUP, VERSION};
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::error::Error;
use super::retry_log::RetryLog;

/// What is read, in the log.
const WHAT: &str = "schema of JobSets";
/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// How long an API server gets to publish a CRD that was installed or changed just now.
const PUBLISHED: Duration = Duration::from_secs(10);

/// Where the API server has the schemas of its groups.
#[derive(Deserialize)]
struct Index {
    paths: HashMap<String, Document>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(rename = "serverRelativeURL")]
    url: String,
}

/// The schemas of a group.
#[derive(Deserialize)]
struct Schemas {
    components: Components,
}

#[derive(Deserialize)]
struct Components {
    schemas: HashMap<String, Schema>,
}

#[derive(Deserialize)]
struct Schema {
    #[serde(rename = "x-kubernetes-group-version-kind", default)]
    kinds: Vec<SchemaKind>,
    #[serde(flatten)]
    fields: Fields,
}

#[derive(Deserialize)]
struct SchemaKind {
    kind: String,
}

/// Waits until the CRD is there, and compares it with what this build reads and writes.
///
/// # Errors
/// [`Error::StaleCrd`], with the fields that would be dropped.
pub(super) async fn check(client: &Client) -> Result<(), Error> {
    let deadline = Instant::now() + PUBLISHED;
    let mut told = false;
    let mut retry_log = RetryLog::default();
    loop {
        let live = fields(client).await;
        if live.is_ok() {
            retry_log.succeeded(WHAT);
        }
        match live {
            Ok(Some(live)) => {
                let missing = Fields::missing_in(&live);
                if missing.is_empty() {
                    return Ok(());
                }
                if Instant::now() >= deadline {
                    return Err(Error::StaleCrd(missing));
                }
            }
            Ok(None) if !told && Instant::now() >= deadline => {
                told = true;
                warn!(
                    crd = format!("jobsets.{GROUP}"),
                    "the CustomResourceDefinition is not installed, waiting for it"
                );
            }
            Ok(None) => {}
            Err(error) => retry_log.failed(WHAT, &error),
        }
        sleep(PERIOD).await;
    }
}

/// The fields of a JobSet as the API server has them; `None` if it has no JobSets.
async fn fields(client: &Client) -> Result<Option<Fields>, kube::Error> {
    let index: Index = get(client, "/openapi/v3").await?;
    let Some(document) = index.paths.get(&format!("apis/{GROUP}/{VERSION}")) else { return Ok(None) };
    let schemas: Schemas = get(client, &document.url).await?;
    let mut schemas = schemas.components.schemas.into_values();
    let jobset = schemas.find(|schema| schema.kinds.iter().any(|kind| kind.kind == "JobSet"));
    Ok(jobset.map(|schema| schema.fields))
}

async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, kube::Error> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}
