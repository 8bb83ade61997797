//! The report of an epoch: one merge patch of the annotations of the agent's Pod.

use std::sync::Arc;
use std::time::Duration;

use jobset_protocol::labels;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::annotation::Annotation;
use crate::args::Names;
use crate::decide::Input;
use crate::request_failure::RequestFailure;

const REPORT_TIMEOUT: Duration = Duration::from_secs(15);

/// What a report carries beside the epoch.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// When the agent started.
    pub start: Option<Arc<Annotation>>,
    /// How the worker of the last epoch ended.
    pub exit: Option<Arc<Annotation>>,
    /// How far workers came.
    pub progress: Option<Arc<Annotation>>,
}

impl Extras {
    fn all(&self) -> [(&'static str, Option<&Annotation>); 3] {
        let Self { start, exit, progress } = self;
        [
            (labels::AGENT_STARTED, start.as_deref()),
            (labels::WORKER_EXIT, exit.as_deref()),
            (labels::PROGRESS, progress.as_deref()),
        ]
    }
}

/// Writes the epoch to the Pod once, with what else is known. If that is rejected, less is written at once: an older policy may not
/// admit all of it. Returns [`Input::Reported`] or [`Input::ReportFailed`]; the
/// state machine decides when to retry.
pub async fn report(client: &Client, names: &Names, epoch: i32, extras: &Extras) -> Input {
    let Names { namespace, pod, .. } = names;
    let mut contents = contents(epoch, extras);
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
            for (label, annotation) in extras.all() {
                if let Some(annotation) = annotation.filter(|_| !content[label].is_string()) {
                    annotation.reject();
                }
            }
            Input::Reported { epoch }
        }
        Err(failure) => {
            let forbidden =
                "let the Pod's ServiceAccount patch pods in this namespace, with the token that is bound to this Pod";
            let advice = failure.advice(forbidden, "check POD_NAME and NAMESPACE");
            tracing::warn!(epoch, %namespace, %pod, cause = failure.text, advice, "cannot report the epoch");
            Input::ReportFailed { epoch, retry_after: failure.retry_after }
        }
    }
}

/// The annotations of a report: all of it, and what is left of it after each rejection, the newest annotation first.
///
/// The start of an earlier agent must not stand beside the epoch of this one, so a content without the start removes it. A policy that
/// does not know the annotation admits that where it is absent.
fn contents(epoch: i32, extras: &Extras) -> Vec<Value> {
    let least = json!({(labels::EPOCH): epoch.to_string()});
    let [start, exit, progress] = extras.all().map(|(label, annotation)| Some((label, annotation?.admitted()?)));
    let mut content = least.clone();
    for (label, value) in [start, exit, progress].into_iter().flatten() {
        content[label] = value.into();
    }
    let mut contents = vec![content.clone()];
    let mut leave = |label: &str, instead: Option<Value>| {
        if let Some(fields) = content.as_object_mut() {
            fields.remove(label);
            fields.extend(instead.map(|value| (label.to_owned(), value)));
        }
        contents.push(content.clone());
    };
    if let Some((label, _)) = progress {
        leave(label, None);
    }
    if let Some((label, _)) = start {
        leave(label, Some(Value::Null));
    }
    contents.push(least);
    contents.dedup();
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
