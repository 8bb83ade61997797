//! What the kubelet would mount for each agent of the stream: the token of its own Pod, and the CA of the relays.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jobset_api::labels;
use jobset_harness::progress::progress;
use jobset_protocol::agent::{RELAY_AUDIENCE, RELAY_CA, RELAY_TOKEN};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};

use super::jobset::{NAME, NAMESPACE};

const CONCURRENCY: usize = 32;
/// Lifetime of the tokens in seconds: longer than any case, because a relay ends a connection with its token.
const LIFETIME: i64 = 6 * 3600;
/// Tokens between two words of progress.
const STEP: usize = 1000;

/// Makes a folder below `root` for the agent of each of these Pods, and gives the folders.
pub(super) async fn folders(client: &Client, root: &Path, ca: &Path, pods: &[String]) -> Result<Vec<PathBuf>> {
    let start = Instant::now();
    fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
    // The folders link to it, so it is in their file system.
    let own_ca = root.join(RELAY_CA);
    fs::copy(ca, &own_ca).context("cannot copy the CA")?;
    let uids = uids(client).await?;
    let done = AtomicUsize::new(0);
    let folder = async |pod: &String| {
        let uid = uids.get(pod).with_context(|| format!("Pod {pod} is gone"))?;
        let token = token(client, pod, uid).await.with_context(|| format!("token of Pod {pod}"))?;
        let folder = root.join(pod);
        fs::create_dir(&folder)?;
        fs::write(folder.join(RELAY_TOKEN), token)?;
        fs::hard_link(&own_ca, folder.join(RELAY_CA))?;
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(STEP) {
            progress(&format!("{done} of {} tokens ({:.1} s)", pods.len(), start.elapsed().as_secs_f64()));
        }
        anyhow::Ok(folder)
    };
    stream::iter(pods).map(folder).buffered(CONCURRENCY).try_collect().await
}

/// The UIDs of the JobSet's Pods, by name.
async fn uids(client: &Client) -> Result<HashMap<String, String>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let of_jobset = ListParams::default().labels(&format!("{}={NAME}", labels::JOBSET_NAME));
    let pods = pods.list_metadata(&of_jobset).await.context("cannot list the Pods")?;
    Ok(pods.into_iter().filter_map(|pod| Some((pod.name_any(), pod.uid()?))).collect())
}

async fn token(client: &Client, pod: &str, uid: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let bound = BoundObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: Some(pod.into()),
        uid: Some(uid.into()),
    };
    let spec = TokenRequestSpec {
        audiences: Some(vec![RELAY_AUDIENCE.into()]),
        bound_object_ref: Some(bound),
        expiration_seconds: Some(LIFETIME),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let issued = accounts.create_token_request("default", &PostParams::default(), &request).await?;
    issued.status.and_then(|status| status.token).context("no token was issued")
}
