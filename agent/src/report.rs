//! The report of an epoch: one merge patch of the annotations of the agent's Pod.

use std::time::Duration;

use jobset_protocol::labels;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::decide::Input;
use crate::request_failure::RequestFailure;
use crate::start::AgentStart;
use crate::worker_exit::WorkerExit;

/// Time limit of one report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(15);

/// Writes the epoch to the Pod once, with when the agent started and how the worker of the last epoch ended. If that is rejected,
/// less is written at once: an older policy may not admit all of it. Returns [`Input::Reported`] or [`Input::ReportFailed`]; the
/// state machine decides when to retry.
pub async fn report(
    client: &Client,
    namespace: &str,
    pod: &str,
    epoch: i32,
    start: Option<&AgentStart>,
    exit: Option<&WorkerExit>,
) -> Input {
    let words = exit.and_then(WorkerExit::annotation);
    let mut contents = contents(epoch, start.and_then(AgentStart::annotation), words.as_deref());
    let answer = loop {
        let content = contents.remove(0);
        let answer = tokio::time::timeout(REPORT_TIMEOUT, patch(client, namespace, pod, &content)).await;
        match answer.unwrap_or_else(|_| Err(RequestFailure::timeout(REPORT_TIMEOUT))) {
            Err(failure) if is_rejection(failure.code) && !contents.is_empty() => {
                tracing::warn!(epoch, cause = failure.text, "the whole report is rejected; reporting less");
            }
            Ok(()) => break Ok(content),
            Err(failure) => break Err(failure),
        }
    };
    match answer {
        Ok(content) => {
            // What is missing was rejected, and is not sent again.
            if let Some(start) = start.filter(|_| !content[labels::AGENT_STARTED].is_string()) {
                start.reject();
            }
            if let Some(exit) = exit.filter(|_| !content[labels::WORKER_EXIT].is_string()) {
                exit.reject();
            }
            Input::Reported { epoch }
        }
        Err(failure) => {
            let advice = advice(failure.code);
            tracing::warn!(epoch, %namespace, %pod, cause = failure.text, advice, "cannot report the epoch");
            Input::ReportFailed { epoch, retry_after: failure.retry_after }
        }
    }
}

/// The annotations of a report: all of it, and what is left of it after each rejection.
///
/// The start of an earlier agent must not stand beside the epoch of this one, so the second content removes it. A policy that does
/// not know the annotation admits that where it is absent.
fn contents(epoch: i32, start: Option<&str>, words: Option<&str>) -> Vec<Value> {
    let content = |start: Option<Value>, words: Option<&str>| {
        let mut content = json!({(labels::EPOCH): epoch.to_string()});
        if let Some(start) = start {
            content[labels::AGENT_STARTED] = start;
        }
        if let Some(words) = words {
            content[labels::WORKER_EXIT] = words.into();
        }
        content
    };
    let mut contents = Vec::new();
    if let Some(start) = start {
        contents.extend([content(Some(start.into()), words), content(Some(Value::Null), words)]);
    } else if words.is_some() {
        contents.push(content(None, words));
    }
    contents.push(content(None, None));
    contents
}

/// Whether the API server has read the request and rejects its content, or a policy does.
fn is_rejection(code: u16) -> bool {
    matches!(code, 400 | 403 | 413 | 422)
}

async fn patch(client: &Client, namespace: &str, pod: &str, annotations: &Value) -> Result<(), RequestFailure> {
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
