//! AdmissionReviews as an API server writes them, and the check of the answers. Pure.

use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use http::Uri;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// One of the two webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewedWebhook {
    Mutate,
    Validate,
}

/// A review that is sent again and again.
#[derive(Clone, Debug)]
pub(super) struct Review {
    pub(super) webhook: ReviewedWebhook,
    pub(super) body: Vec<u8>,
    object: Value,
    stored: Value,
    /// The first answer, which was right. Every other one must be the same.
    answer: OnceLock<Vec<u8>>,
}

impl ReviewedWebhook {
    /// Name of the figures.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }

    /// Where the reviews are sent, as it is registered.
    pub(super) fn path(self) -> Uri {
        Uri::from_static(match self {
            Self::Mutate => "/mutate-jobset-x-k8s-io-v1alpha2-jobset",
            Self::Validate => "/validate-jobset-x-k8s-io-v1alpha2-jobset",
        })
    }
}

impl Review {
    /// The review of the creation of an object: as it is `sent` to the mutating webhook, and as it is `stored` after that.
    pub(super) fn new(webhook: ReviewedWebhook, sent: &Value, stored: &Value) -> Self {
        let object = if webhook == ReviewedWebhook::Mutate { sent } else { stored };
        let body = admission_review(object).to_string().into_bytes();
        Self { webhook, body, object: object.clone(), stored: stored.clone(), answer: OnceLock::new() }
    }

    /// Checks an answer.
    pub(super) fn check(&self, answer: &[u8]) -> Result<()> {
        if self.answer.get().is_none() {
            self.check_thoroughly(answer).with_context(|| format!("{}", String::from_utf8_lossy(answer)))?;
        }
        ensure!(self.answer.get_or_init(|| answer.to_vec()) == answer, "one review had two different answers");
        Ok(())
    }

    /// Size of the answer.
    pub(super) fn answer_bytes(&self) -> usize {
        self.answer.get().map_or(0, Vec::len)
    }

    fn check_thoroughly(&self, answer: &[u8]) -> Result<()> {
        let answer: Value = serde_json::from_slice(answer).context("the answer is not JSON")?;
        let response = &answer["response"];
        ensure!(response["uid"] == UID, "the answer is to another review");
        ensure!(response["allowed"] == true, "the JobSet was rejected");
        let patched = match self.webhook {
            ReviewedWebhook::Mutate => {
                ensure!(response["patchType"] == "JSONPatch", "there is no patch");
                let patch: ByteString = serde_json::from_value(response["patch"].clone()).context("no base64")?;
                let patch: json_patch::Patch = serde_json::from_slice(&patch.0).context("no JSON patch")?;
                let mut object = self.object.clone();
                json_patch::patch(&mut object, &patch).context("the patch does not apply")?;
                object
            }
            ReviewedWebhook::Validate => self.object.clone(),
        };
        ensure!(patched["spec"] == self.stored["spec"], "the API server stored another object than this answer makes");
        Ok(())
    }
}

/// The review of the creation of a JobSet.
fn admission_review(object: &Value) -> Value {
    let kind = json!({ "group": "jobset.x-k8s.io", "version": "v1alpha2", "kind": "JobSet" });
    let resource = json!({ "group": "jobset.x-k8s.io", "version": "v1alpha2", "resource": "jobsets" });
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": object["metadata"]["name"],
            "namespace": object["metadata"]["namespace"],
            "operation": "CREATE",
            "userInfo": { "username": "kubernetes-admin", "groups": ["kubeadm:cluster-admins", "system:authenticated"] },
            "object": object,
            "oldObject": null,
            "dryRun": false,
            "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl" },
        },
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn objects() -> (Value, Value) {
        let sent = json!({ "metadata": { "name": "a" }, "spec": { "b": 1 } });
        let mut stored = sent.clone();
        stored["spec"]["c"] = json!(2);
        (sent, stored)
    }

    fn patched(patch: &str) -> Value {
        let patch = serde_json::to_value(ByteString(patch.as_bytes().to_vec())).unwrap();
        json!({ "response": { "uid": UID, "allowed": true, "patchType": "JSONPatch", "patch": patch } })
    }

    #[rstest]
    #[case::as_stored(ReviewedWebhook::Mutate, patched(r#"[{"op":"add","path":"/spec/c","value":2}]"#), None)]
    #[case::otherwise(ReviewedWebhook::Mutate, patched("[]"), Some("another object"))]
    #[case::does_not_apply(
        ReviewedWebhook::Mutate,
        patched(r#"[{"op":"remove","path":"/x"}]"#),
        Some("does not apply")
    )]
    #[case::no_patch(ReviewedWebhook::Mutate, json!({ "response": { "uid": UID, "allowed": true } }), Some("no patch"))]
    #[case::valid(ReviewedWebhook::Validate, json!({ "response": { "uid": UID, "allowed": true } }), None)]
    #[case::rejected(ReviewedWebhook::Validate, json!({ "response": { "uid": UID, "allowed": false } }), Some("rejected"))]
    #[case::another(ReviewedWebhook::Validate, json!({ "response": { "uid": "x", "allowed": true } }), Some("another review"))]
    fn answer_wrong_in_any_part_is_an_error(
        #[case] webhook: ReviewedWebhook,
        #[case] answer: Value,
        #[case] wrong: Option<&str>,
    ) {
        let (sent, stored) = objects();
        let review = Review::new(webhook, &sent, &stored);
        match (review.check(answer.to_string().as_bytes()), wrong) {
            (Ok(()), None) => assert!(review.answer_bytes() > 0),
            (Err(error), Some(wrong)) => assert!(format!("{error:#}").contains(wrong), "{error:#}"),
            (outcome, wrong) => panic!("{outcome:?} instead of {wrong:?}"),
        }
    }

    #[test]
    fn answer_differing_from_first_is_an_error() {
        let (sent, stored) = objects();
        let review = Review::new(ReviewedWebhook::Validate, &sent, &stored);
        let answer = json!({ "response": { "uid": UID, "allowed": true } }).to_string().into_bytes();
        review.check(&answer).unwrap();
        review.check(&answer).unwrap();
        assert!(review.check(b"{}").is_err());
    }
}
