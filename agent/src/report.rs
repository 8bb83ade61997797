//! The report of the own epoch: one merge patch of the own Pod's annotation.

use std::time::Duration;

use jobset_protocol::labels;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::decide::Input;
use crate::error::Failure;

/// Longest wait for the API server's answer.
const LIMIT: Duration = Duration::from_secs(15);

/// Writes the epoch to the Pod once. Gives [`Input::Reported`] or [`Input::ReportFailed`]; when to try again is the
/// agent's decision.
pub async fn report(client: &Client, namespace: &str, pod: &str, epoch: i32) -> Input {
    let answer = tokio::time::timeout(LIMIT, patch(client, namespace, pod, epoch)).await;
    match answer.unwrap_or_else(|_| Err(Failure::timeout(LIMIT))) {
        Ok(()) => Input::Reported { epoch },
        Err(failure) => {
            let advice = advice(failure.code);
            tracing::warn!(epoch, %namespace, %pod, cause = failure.text, advice, "cannot report the epoch");
            Input::ReportFailed { epoch, retry_after: failure.retry_after }
        }
    }
}

async fn patch(client: &Client, namespace: &str, pod: &str, epoch: i32) -> Result<(), Failure> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {(labels::EPOCH): epoch.to_string()}}}));
    // The answer to a plain patch is the whole Pod; metadata is the least that the API server sends.
    let request = Request::new(format!("/api/v1/namespaces/{namespace}/pods"))
        .patch_metadata(pod, &PatchParams::default(), &patch)
        .map_err(kube::Error::BuildRequest)?;
    client.request::<IgnoredAny>(request).await?;
    Ok(())
}

/// What a person can do about a refused report.
fn advice(code: u16) -> &'static str {
    match code {
        401 => "check the Pod's ServiceAccount token",
        403 => "let the Pod's ServiceAccount patch pods in this namespace, with the token that is bound to this Pod",
        404 => "check POD_NAME and NAMESPACE",
        _ => "retrying",
    }
}
