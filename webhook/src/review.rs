//! AdmissionReview v1: bytes in, bytes out. The decisions are those of [`crate::jobset`].

use jobset_api::JobSet;
use k8s_openapi::ByteString;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionReview, META_API_VERSION_V1, META_KIND, Operation};
use kube::core::response::{Status, StatusDetails, StatusSummary, reason};
use serde::Serialize;
use tracing::{debug, info};

use crate::field::{Errors, Path};
use crate::{jobset, patch};

/// A body that is not an AdmissionReview this service understands. The text is for the answer.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// Not JSON, or not of the shape of an AdmissionReview.
    #[error("the body is not an AdmissionReview: {0}")]
    Json(#[source] serde_json::Error),
    /// Another kind or version.
    #[error("the body is a {kind} of {api_version}; this service understands {META_KIND} of {META_API_VERSION_V1}")]
    Version {
        /// Kind found.
        kind: String,
        /// API version found.
        api_version: String,
    },
    /// A review without a request, such as an answer.
    #[error("the AdmissionReview has no request")]
    NoRequest,
}

/// The answer to a review.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

// kube's own response type writes the patch as a list of numbers; the API says base64.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
}

/// Answers a review of the mutating webhook.
///
/// An object that cannot be read is let through as it is: the API server validates it against the schema after this, and
/// names what is wrong better than we could.
///
/// # Errors
/// When the body is not an AdmissionReview.
pub fn mutate(body: &[u8]) -> Result<Review, Malformed> {
    let (uid, request) = match decode(body)? {
        Decoded::Readable(request) => (request.uid.clone(), request),
        Decoded::Unreadable { uid, .. } => return Ok(Review::allow(uid)),
    };
    let (Some(before), Some(after)) = (&request.object, jobset::mutate(&request)) else {
        return Ok(Review::allow(uid));
    };
    let patch = patch::diff(before, &after).and_then(|patch| serde_json::to_vec(&patch));
    let patch = match patch {
        Ok(patch) => patch,
        Err(error) => return Ok(Review::deny(uid, Status::failure(&error.to_string(), reason::INTERNAL_ERROR).with_code(500))),
    };
    debug!(jobset = %name(&request), namespace = request.namespace, "defaulted");
    Ok(Review::patch(uid, patch))
}

/// Answers a review of the validating webhook.
///
/// # Errors
/// When the body is not an AdmissionReview.
pub fn validate(body: &[u8]) -> Result<Review, Malformed> {
    let (uid, name, namespace, errors) = match decode(body)? {
        Decoded::Readable(request) => {
            let errors = jobset::validate(&request);
            (request.uid.clone(), name(&request).to_owned(), request.namespace, errors)
        }
        Decoded::Unreadable { uid, name, namespace, errors } => (uid, name, namespace, errors),
    };
    if errors.is_empty() {
        return Ok(Review::allow(uid));
    }
    info!(jobset = name, namespace, %errors, "refused");
    Ok(Review::deny(uid, invalid(&name, &errors)))
}

impl Review {
    fn of(response: Response) -> Self {
        Self { api_version: META_API_VERSION_V1, kind: META_KIND, response }
    }

    fn allow(uid: String) -> Self {
        Self::of(Response { uid, allowed: true, ..Response::default() })
    }

    fn patch(uid: String, patch: Vec<u8>) -> Self {
        let patch = Some(ByteString(patch));
        Self::of(Response { uid, allowed: true, patch, patch_type: Some("JSONPatch"), ..Response::default() })
    }

    fn deny(uid: String, status: Status) -> Self {
        Self::of(Response { uid, allowed: false, status: Some(status), ..Response::default() })
    }
}

enum Decoded {
    Readable(Box<AdmissionRequest<JobSet>>),
    /// The object is not a JobSet as this build knows it.
    Unreadable { uid: String, name: String, namespace: Option<String>, errors: Errors },
}

fn decode(body: &[u8]) -> Result<Decoded, Malformed> {
    match serde_json::from_slice::<AdmissionReview<JobSet>>(body) {
        Ok(review) => request_of(review).map(|request| Decoded::Readable(Box::new(request))),
        // Either the review is malformed, or just the object in it.
        Err(_) => {
            let review = serde_json::from_slice::<AdmissionReview<DynamicObject>>(body).map_err(Malformed::Json)?;
            Ok(decode_leniently(request_of(review)?))
        }
    }
}

fn request_of<T: kube::Resource>(review: AdmissionReview<T>) -> Result<AdmissionRequest<T>, Malformed> {
    if review.types.kind != META_KIND || review.types.api_version != META_API_VERSION_V1 {
        return Err(Malformed::Version { kind: review.types.kind, api_version: review.types.api_version });
    }
    review.request.ok_or(Malformed::NoRequest)
}

/// An old object that cannot be read counts as none, so that it can be replaced by one that can.
fn decode_leniently(request: AdmissionRequest<DynamicObject>) -> Decoded {
    let deleting = request.object.as_ref().is_some_and(|it| it.metadata.deletion_timestamp.is_some());
    let object = if deleting || request.operation == Operation::Delete {
        None
    } else {
        match request.object.as_ref().map(read).transpose() {
            Ok(object) => object,
            Err(errors) => {
                let object_name = request.object.and_then(|it| it.metadata.name).unwrap_or_default();
                let name = if request.name.is_empty() { object_name } else { request.name };
                return Decoded::Unreadable { uid: request.uid, name, namespace: request.namespace, errors };
            }
        }
    };
    let old_object = request.old_object.as_ref().and_then(|old| read(old).ok());
    Decoded::Readable(Box::new(AdmissionRequest {
        types: request.types,
        uid: request.uid,
        kind: request.kind,
        resource: request.resource,
        sub_resource: request.sub_resource,
        request_kind: request.request_kind,
        request_resource: request.request_resource,
        request_sub_resource: request.request_sub_resource,
        name: request.name,
        namespace: request.namespace,
        operation: request.operation,
        user_info: request.user_info,
        object,
        old_object,
        dry_run: request.dry_run,
        options: request.options,
    }))
}

fn read(object: &DynamicObject) -> Result<JobSet, Errors> {
    // Metadata has been read already; what can go wrong is in the rest.
    let value = serde_json::json!({ "apiVersion": "", "kind": "", "metadata": object.metadata, "spec": object.data["spec"], "status": object.data.get("status") });
    serde_path_to_error::deserialize(value).map_err(|error| {
        let mut errors = Errors::default();
        let path = error.path().to_string();
        errors.unreadable(&Path::root(&path), &error.into_inner());
        errors
    })
}

/// Name of the JobSet, or the beginning of the name that the API server will give it.
fn name(request: &AdmissionRequest<JobSet>) -> &str {
    let metadata = request.object.as_ref().map(|it| &it.metadata);
    let generated = || metadata.and_then(|it| it.name.as_deref().or(it.generate_name.as_deref())).unwrap_or_default();
    if request.name.is_empty() { generated() } else { &request.name }
}

/// The refusal, as the API server itself refuses an object that breaks its schema.
fn invalid(name: &str, errors: &Errors) -> Status {
    let details = StatusDetails {
        name: name.to_owned(),
        group: jobset_api::GROUP.to_owned(),
        kind: "JobSet".to_owned(),
        causes: errors.causes(),
        ..StatusDetails::default()
    };
    Status {
        status: Some(StatusSummary::Failure),
        code: 422,
        message: format!("JobSet.{} \"{name}\" is invalid: {errors}", jobset_api::GROUP),
        metadata: None,
        reason: reason::INVALID.to_owned(),
        details: Some(details),
    }
}
