//! Requests to the API server whose answers are looked at whole: code, object and warnings, which kube's client drops.

use anyhow::{Context as _, Result};
use hyper::Request;
use hyper::header::{CONTENT_TYPE, WARNING};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// The JobSets of the namespace in which tests create them.
const JOBSETS: &str = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets";
/// The webhooks: the one that fills in, and the one that validates.
const WEBHOOKS: [&str; 2] = ["mjobset.kb.io", "vjobset.kb.io"];

/// What the API server answers to a write.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    /// The object as it is stored, or the Status that refuses it.
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

/// Writes of JobSets in the namespace of tests. Fields that the CRD does not know are refused, so that a slip of the pen
/// in a test is seen.
pub(crate) struct Writes(pub(crate) Client);

impl Writes {
    /// Has the API server decide about a JobSet without storing it.
    pub(crate) async fn dry_run(&self, jobset: &Value) -> Result<Answer> {
        self.send(Request::post(format!("{JOBSETS}?fieldValidation=Strict&dryRun=All")), "application/json", jobset)
            .await
    }

    /// The JobSet of this name, as it is stored.
    pub(crate) async fn read(&self, jobset: &Value) -> Result<Value> {
        Ok(self.0.request(Request::get(format!("{JOBSETS}/{}", name(jobset))).body(Vec::new())?).await?)
    }

    pub(crate) async fn create(&self, jobset: &Value) -> Result<Answer> {
        self.send(Request::post(format!("{JOBSETS}?fieldValidation=Strict")), "application/json", jobset).await
    }

    /// Writes a JobSet that was read, changed.
    pub(crate) async fn replace(&self, jobset: &Value) -> Result<Answer> {
        let uri = format!("{JOBSETS}/{}?fieldValidation=Strict", name(jobset));
        self.send(Request::put(uri), "application/json", jobset).await
    }

    pub(crate) async fn status(&self, name: &str, status: &Value) -> Result<Answer> {
        let uri = format!("{JOBSETS}/{name}/status");
        self.send(Request::patch(uri), "application/merge-patch+json", &json!({ "status": status })).await
    }

    /// Applies a JobSet server-side.
    pub(crate) async fn apply(&self, manager: &str, jobset: &Value) -> Result<Answer> {
        let uri = format!("{JOBSETS}/{}?fieldValidation=Strict&fieldManager={manager}", name(jobset));
        self.send(Request::patch(uri), "application/apply-patch+yaml", jobset).await
    }

    async fn send(&self, request: hyper::http::request::Builder, kind: &str, body: &Value) -> Result<Answer> {
        let request = request.header(CONTENT_TYPE, kind).body(Body::from(body.to_string().into_bytes()))?;
        let response = self.0.send(request).await?;
        let code = response.status().as_u16();
        let warnings = response.headers().get_all(WARNING).iter().map(|value| Ok(warning(value.to_str()?)));
        let warnings = warnings.collect::<Result<_>>()?;
        let body = response.into_body().collect_bytes().await?;
        let object = serde_json::from_slice(&body).with_context(|| String::from_utf8_lossy(&body).into_owned())?;
        Ok(Answer { code, object, warnings })
    }
}

/// The text of a Warning header (RFC 7234): `299 - "text"`.
fn warning(header: &str) -> String {
    let quoted = header.strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"')).unwrap_or(header);
    let mut escaped = false;
    let keep = |letter: &char| {
        escaped = *letter == '\\' && !escaped;
        !escaped
    };
    quoted.chars().filter(keep).collect()
}

pub(crate) fn name(jobset: &Value) -> &str {
    jobset["metadata"]["name"].as_str().unwrap_or_default()
}

impl Answer {
    pub(crate) fn is_accepted(&self) -> bool {
        self.code < 300
    }

    /// Whether a webhook refused, and not the API server itself.
    pub(crate) fn is_denied(&self) -> bool {
        let message = self.object["message"].as_str().unwrap_or_default();
        WEBHOOKS.iter().any(|name| message.starts_with(&format!("admission webhook \"{name}\" denied the request: ")))
    }

    /// What is wrong, each as `field: message`; without the remark of the API server that it has not looked at all.
    pub(crate) fn causes(&self) -> Vec<String> {
        let causes = self.object["details"]["causes"].as_array().into_iter().flatten();
        let causes = causes.filter(|cause| cause["field"] != "<nil>");
        let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        causes.map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect()
    }

    /// The object as it is stored.
    pub(crate) fn accepted(self) -> Result<Value> {
        anyhow::ensure!(self.is_accepted(), "{} {}", self.code, self.object["message"]);
        Ok(self.object)
    }
}

#[test]
fn a_warning_is_read_as_it_was_written() {
    assert_eq!(warning(r#"299 - "is \"a\\b\"""#), r#"is "a\b""#);
    assert_eq!(warning("199 x"), "199 x");
}
