//! AdmissionReview v1: bytes in, bytes out. The decisions are those of [`crate::jobset`].

use jobset_api::JobSet;
use jobset_api::gates::Gates;
use jobset_api::validation::{Errors, Path};
use k8s_openapi::ByteString;
use kube::core::admission::{AdmissionRequest, AdmissionReview, META_API_VERSION_V1, META_KIND};
use kube::core::response::{Status, StatusCause, StatusDetails, StatusSummary, reason};
use serde::Serialize;
use serde_json::Value;
use tracing::{debug, info};

use crate::{jobset, patch};

const WHOLE_OBJECT: &str = "request.object";
const OBJECT: &str = "request.object.";
const OLD_OBJECT: &str = "request.oldObject.";

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
        Err(error) => {
            return Ok(Review::deny(uid, Status::failure(&error.to_string(), reason::INTERNAL_ERROR).with_code(500)));
        }
    };
    debug!(jobset = %name(&request), namespace = request.namespace, "defaulted");
    Ok(Review::patch(uid, patch))
}

/// Answers a review of the validating webhook.
///
/// # Errors
/// When the body is not an AdmissionReview.
pub fn validate(body: &[u8], gates: Gates) -> Result<Review, Malformed> {
    let (uid, name, namespace, errors) = match decode(body)? {
        Decoded::Readable(request) => {
            let errors = jobset::validate(&request, gates);
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
    Unreadable {
        uid: String,
        name: String,
        namespace: Option<String>,
        errors: Errors,
    },
}

fn decode(body: &[u8]) -> Result<Decoded, Malformed> {
    match serde_json::from_slice(body) {
        Ok(review) => request_of(review).map(Decoded::Readable),
        // Either the review itself is malformed, or an object in it.
        Err(_) => decode_leniently(serde_json::from_slice(body).map_err(Malformed::Json)?),
    }
}

fn request_of(review: AdmissionReview<JobSet>) -> Result<Box<AdmissionRequest<JobSet>>, Malformed> {
    if review.types.kind != META_KIND || review.types.api_version != META_API_VERSION_V1 {
        return Err(Malformed::Version { kind: review.types.kind, api_version: review.types.api_version });
    }
    review.request.map(Box::new).ok_or(Malformed::NoRequest)
}

/// Decodes a review in which something cannot be read. An old object of that sort counts as none, so that it can be
/// replaced by a better one; so does a new one that no rule looks at.
fn decode_leniently(mut review: Value) -> Result<Decoded, Malformed> {
    let read = |review: &Value| serde_path_to_error::deserialize::<_, AdmissionReview<JobSet>>(review);
    let text = |pointer: &str| review.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let exempt = text("/request/subResource").is_some() || text("/request/object/metadata/deletionTimestamp").is_some();
    let name = text("/request/name").or(text("/request/object/metadata/name")).unwrap_or_default().to_owned();
    let uid = text("/request/uid").unwrap_or_default().to_owned();
    let namespace = text("/request/namespace").map(str::to_owned);
    if exempt {
        review["request"]["object"] = Value::Null;
    }
    if read(&review).is_err_and(|error| error.path().to_string().starts_with(OLD_OBJECT)) {
        review["request"]["oldObject"] = Value::Null;
    }
    let error = match read(&review) {
        Ok(review) => return request_of(review).map(Decoded::Readable),
        Err(error) => error,
    };
    let path = error.path().to_string();
    let mut errors = Errors::default();
    if path == WHOLE_OBJECT {
        // Of what a JobSet must have, the API server sees to all but this.
        errors.required(&Path::root("spec"), error.into_inner().to_string());
    } else if let Some(field) = path.strip_prefix(OBJECT) {
        let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
        errors.invalid(&Path::root(field), review.pointer(&pointer), error.into_inner().to_string());
    } else {
        return Err(Malformed::Json(error.into_inner()));
    }
    Ok(Decoded::Unreadable { uid, name, namespace, errors })
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
        uid: String::new(),
        causes: causes(errors),
        retry_after_seconds: 0,
    };
    Status {
        status: Some(StatusSummary::Failure),
        code: 422,
        message: format!("JobSet.{} \"{name}\" is invalid: {}", jobset_api::GROUP, aggregate(errors)),
        metadata: None,
        reason: reason::INVALID.to_owned(),
        details: Some(details),
    }
}

fn causes(errors: &Errors) -> Vec<StatusCause> {
    let cause =
        |reason: &str, message: String, field: String| StatusCause { reason: reason.to_owned(), message, field };
    let mut causes: Vec<_> =
        errors.iter().map(|it| cause(it.reason.as_str(), it.message.clone(), it.field.clone())).collect();
    if errors.omitted() > 0 {
        causes.push(cause("", more(errors), String::new()));
    }
    causes
}

/// One error as it is, several in brackets, as Kubernetes writes them.
fn aggregate(errors: &Errors) -> String {
    let mut texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    if errors.omitted() > 0 {
        texts.push(more(errors));
    }
    match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

fn more(errors: &Errors) -> String {
    format!("and {} more errors", errors.omitted())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(count: usize) -> Errors {
        let mut errors = Errors::default();
        (0..count).for_each(|index| errors.invalid(&Path::root("spec").child("a"), index, "must not be"));
        errors
    }

    #[test]
    fn one_error_stands_alone_and_several_in_brackets() {
        assert_eq!(aggregate(&errors(1)), "spec.a: Invalid value: 0: must not be");
        assert_eq!(
            aggregate(&errors(2)),
            "[spec.a: Invalid value: 0: must not be, spec.a: Invalid value: 1: must not be]"
        );
    }

    #[test]
    fn causes_carry_field_reason_and_message() {
        let mut errors = errors(1);
        errors.required(&Path::root("spec").child("name"), "must be set");
        let causes = causes(&errors);
        assert_eq!(causes[0].field, "spec.a");
        assert_eq!(causes[0].reason, "FieldValueInvalid");
        assert_eq!(causes[0].message, "Invalid value: 0: must not be");
        assert_eq!(causes[1].reason, "FieldValueRequired");
    }

    #[test]
    fn errors_that_are_only_counted_are_said_to_be_there() {
        let errors = errors(50);
        assert!(aggregate(&errors).ends_with(", and 20 more errors]"));
        assert_eq!(causes(&errors).last().unwrap().message, "and 20 more errors");
    }
}
