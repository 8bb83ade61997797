//! AdmissionReviews as an API server writes them, and the check of the answers. Pure.

use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewedWebhook {
    Mutate,
    Validate,
    /// That of Pods whose JobSet may avoid nodes.
    Pod,
}

/// A review that is sent again and again.
#[derive(Clone, Debug)]
pub(super) struct Review {
    pub(super) webhook: ReviewedWebhook,
    pub(super) body: Vec<u8>,
    /// The first answer. Every other one must be the same.
    answer: OnceLock<Vec<u8>>,
}

impl ReviewedWebhook {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
            Self::Pod => "pod",
        }
    }

    pub(super) fn path(self) -> String {
        match self {
            Self::Mutate | Self::Validate => format!("/{}-jobset-x-k8s-io-v1alpha2-jobset", self.name()),
            Self::Pod => "/mutate-v1-pod-nodes".to_owned(),
        }
    }
}

impl Review {
    /// The review of the creation of an object, as the webhook receives it.
    pub(super) fn new(webhook: ReviewedWebhook, object: &Value) -> Self {
        Self { webhook, body: admission_review(webhook, object).to_string().into_bytes(), answer: OnceLock::new() }
    }

    /// Checks an answer: the object is allowed, and has a patch if this webhook mutates.
    pub(super) fn check(&self, answer: &[u8]) -> Result<()> {
        if self.answer.get().is_none() {
            let first: Value = serde_json::from_slice(answer).context("the answer is not JSON")?;
            let response = &first["response"];
            ensure!(response["uid"] == UID, "the answer is to another review: {first}");
            ensure!(response["allowed"] == true, "the object was rejected: {first}");
            ensure!(self.webhook == ReviewedWebhook::Validate || response["patch"].is_string(), "no patch: {first}");
        }
        ensure!(self.answer.get_or_init(|| answer.to_vec()) == answer, "one review had two different answers");
        Ok(())
    }
}

fn admission_review(webhook: ReviewedWebhook, object: &Value) -> Value {
    let (group, version, kind, resource) = match webhook {
        ReviewedWebhook::Mutate | ReviewedWebhook::Validate => ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
        ReviewedWebhook::Pod => ("", "v1", "Pod", "pods"),
    };
    let kind = json!({ "group": group, "version": version, "kind": kind });
    let resource = json!({ "group": group, "version": version, "resource": resource });
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

    #[rstest]
    #[case::patched(ReviewedWebhook::Mutate, json!({ "uid": UID, "allowed": true, "patch": "W10=" }), None)]
    #[case::no_patch(ReviewedWebhook::Mutate, json!({ "uid": UID, "allowed": true }), Some("no patch"))]
    #[case::valid(ReviewedWebhook::Validate, json!({ "uid": UID, "allowed": true }), None)]
    #[case::rejected(ReviewedWebhook::Validate, json!({ "uid": UID, "allowed": false }), Some("rejected"))]
    #[case::another(ReviewedWebhook::Validate, json!({ "uid": "x", "allowed": true }), Some("another review"))]
    fn answer_wrong_in_any_part_is_an_error(
        #[case] webhook: ReviewedWebhook,
        #[case] response: Value,
        #[case] wrong: Option<&str>,
    ) {
        let review = Review::new(webhook, &json!({ "metadata": { "name": "a" } }));
        let answer = json!({ "response": response }).to_string();
        match (review.check(answer.as_bytes()), wrong) {
            (Ok(()), None) => assert!(review.check(b"{}").is_err(), "the next answer differs"),
            (Err(error), Some(wrong)) => assert!(error.to_string().contains(wrong), "{error:#}"),
            (outcome, wrong) => panic!("{outcome:?} instead of {wrong:?}"),
        }
    }
}
