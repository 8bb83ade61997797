//! The report of an epoch: one merge patch of the annotations of the agent's Pod.

use std::time::Duration;

use jobset_protocol::labels;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::decide::Input;
use crate::request_failure::RequestFailure;
use crate::worker_exit::WorkerExit;

/// Time limit of one report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(15);

/// Writes the epoch to the Pod once, with how the worker of the last epoch ended. If that is rejected, the epoch is written
/// alone at once: an older policy may not admit the words. Returns [`Input::Reported`] or [`Input::ReportFailed`]; the state machine decides when to
/// retry.
pub async fn report(client: &Client, namespace: &str, pod: &str, epoch: i32, exit: Option<&WorkerExit>) -> Input {
    let words = exit.and_then(WorkerExit::annotation);
    let send = async |words: Option<&str>| {
        let answer = tokio::time::timeout(REPORT_TIMEOUT, patch(client, namespace, pod, epoch, words)).await;
        answer.unwrap_or_else(|_| Err(RequestFailure::timeout(REPORT_TIMEOUT)))
    };
    let mut answer = send(words.as_deref()).await;
    if let (Err(failure), Some(exit), true) = (&answer, exit, words.is_some())
        && is_rejection(failure.code)
    {
        tracing::warn!(epoch, cause = failure.text, "cannot report how the worker ended; reporting the epoch alone");
        exit.reject();
        answer = send(None).await;
    }
    match answer {
        Ok(()) => Input::Reported { epoch },
        Err(failure) => {
            let advice = advice(failure.code);
            tracing::warn!(epoch, %namespace, %pod, cause = failure.text, advice, "cannot report the epoch");
            Input::ReportFailed { epoch, retry_after: failure.retry_after }
        }
    }
}

/// Whether the API server has read the request and rejects its content, or a policy does.
fn is_rejection(code: u16) -> bool {
    matches!(code, 400 | 403 | 413 | 422)
}

async fn patch(
    client: &Client,
    namespace: &str,
    pod: &str,
    epoch: i32,
    words: Option<&str>,
) -> Result<(), RequestFailure> {
    let mut annotations = json!({(labels::EPOCH): epoch.to_string()});
    if let Some(words) = words {
        annotations[labels::WORKER_EXIT] = words.into();
    }
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    // The answer to a plain patch is the whole Pod. Metadata alone is the shortest answer that the API server offers.
    let request = Request::new(format!("/api/v1/namespaces/{namespace}/pods"))
        .patch_metadata(pod, &PatchParams::default(), &patch)
        .map_err(kube::Error::BuildRequest)?;
    client.request::<IgnoredAny>(request).await?;
    Ok(())
}

/// What a person can do about a report that the API server rejects.
fn advice(code: u16) -> &'static str {
    match code {
        401 => "check the Pod's ServiceAccount token",
        403 => "let the Pod's ServiceAccount patch pods in this namespace, with the token that is bound to this Pod",
        404 => "check POD_NAME and NAMESPACE",
        _ => "retrying",
    }
}
