//! AdmissionReview v1: bytes in, bytes out. The decisions are those of [`crate::jobset`], [`crate::pod`] and
//! [`crate::nodes`].

pub(crate) mod nodes;
mod unreadable;

use jobset_api::injection::Settings;
use jobset_api::validation::Errors;
use jobset_api::weight::{Meter, Metered};
use jobset_program::log_limit;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::core::admission::{META_API_VERSION_V1, META_KIND, Operation};
use kube::core::response::{Status, StatusCause, StatusDetails, reason};
use serde::{Deserialize as _, Serialize};
use tracing::{debug, info};

use crate::jobset::Terms;
use crate::metrics::{Outcome, Verdict};
use crate::pod::placement::{Follower, Role};
use crate::pod::refusal::{Reason, Refusal};
use crate::strict::budget;
use crate::wire::{AdmissionRequest, AdmissionReview, Object};
use crate::{jobset, patch, pod};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As API servers write it, or not at all.
    Quick,
    /// If that fails, in search of what cannot be read. It takes up to a hundred times as much memory as the body: one at a time.
    Careful,
}

/// A body that is not an AdmissionReview this service understands. The text is for the answer.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    #[error("the body is not an AdmissionReview: {0}")]
    Json(#[source] serde_json::Error),
    #[error("the body is a {kind} of {api_version}; this service understands {META_KIND} of {META_API_VERSION_V1}")]
    Version { kind: String, api_version: String },
    /// The body has to be read with care.
    #[error("the body cannot be read quickly")]
    Unread,
    /// A review without a request, such as an answer.
    #[error("the AdmissionReview has no request")]
    NoRequest,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
    #[serde(skip)]
    operation: Option<Operation>,
    #[serde(skip)]
    rejection: Option<Reason>,
    /// Whether the object is let through for want of a decision.
    #[serde(skip)]
    is_undecided: bool,
}

/// What of a request is needed to answer it.
struct Asked {
    uid: String,
    operation: Option<Operation>,
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// What comes of a review of the webhook that places Pods.
pub(crate) enum Placement {
    Reviewed(Box<Review>),
    /// The Pod goes where its leader is, which has to be found out first: see [`follow`].
    Follows(Follower),
}

/// Answers a review of the mutating webhook.
///
/// An object that cannot be read is let through as it is: the API server validates it against the schema after this, and
/// names what is wrong better than we could.
///
/// # Errors
/// When the body is not an AdmissionReview, or has to be read with care.
pub fn mutate(body: &[u8], reading: Reading, settings: &Settings) -> Result<Review, Malformed> {
    let (asked, request) = match decode(body, reading)? {
        Decoded::Readable(request) => (Asked::by(&request), request),
        Decoded::Unreadable { asked, .. } => return Ok(Review::allow(asked)),
    };
    let (name, namespace) = (name(&request).to_owned(), request.namespace.clone());
    let Some(change) = jobset::mutate(*request, settings) else { return Ok(Review::allow(asked)) };
    debug!(jobset = name, namespace, "filled in");
    Ok(Review::change(asked, &change.before, &change.after))
}

/// Answers a review of the webhook that places Pods, unless the Pod follows. One that cannot be read is let through, as by
/// [`mutate`].
pub(crate) fn place(body: &[u8], reading: Reading) -> Result<Placement, Malformed> {
    let request = match decode::<Pod>(body, reading)? {
        Decoded::Readable(request) => request,
        Decoded::Unreadable { asked, .. } => return Ok(Placement::Reviewed(Box::new(Review::allow(asked)))),
    };
    let after = match pod::role(&request) {
        Ok(Some(Role::Follower(follower))) => return Ok(Placement::Follows(follower)),
        Ok(Some(Role::Leader(leader))) => Ok(request.object().map(|pod| leader.keep_away(pod))),
        Ok(None) => Ok(None),
        Err(refusal) => Err(refusal),
    };
    Ok(Placement::Reviewed(Box::new(placed(&request, after))))
}

/// Answers a review of a Pod that follows, which goes to this domain. It is read again: as long as it waited for its leader,
/// nothing was kept of it but the body.
pub(crate) fn follow(body: &[u8], follower: &Follower, domain: Result<String, Refusal>) -> Result<Review, Malformed> {
    let request = match decode::<Pod>(body, Reading::Quick)? {
        Decoded::Readable(request) => request,
        Decoded::Unreadable { asked, .. } => return Ok(Review::allow(asked)),
    };
    let after = domain.map(|domain| request.object().map(|pod| follower.follow(pod, domain)));
    Ok(placed(&request, after))
}

fn placed(request: &AdmissionRequest<Pod>, after: Result<Option<Pod>, Refusal>) -> Review {
    let (asked, pod, namespace) = (Asked::by(request), name(request), request.namespace.as_deref());
    match (request.object(), after) {
        (Some(before), Ok(Some(after))) if *before != after => {
            debug!(pod, namespace, "placed");
            Review::change(asked, before, &after)
        }
        (_, Ok(_)) => Review::allow(asked),
        (_, Err(refusal)) => {
            if let Some(suppressed) = log_limit::permit(namespace.unwrap_or_default()) {
                let refusal = refusal.to_string();
                let [pod, namespace, refusal] =
                    [pod, namespace.unwrap_or_default(), &refusal].map(log_limit::beginning);
                info!(pod, namespace, refusal, suppressed, "refused");
            }
            Review { rejection: Some(refusal.reason()), ..Review::deny(asked, refusal.status()) }
        }
    }
}

/// Answers a review of the validating webhook.
///
/// # Errors
/// When the body is not an AdmissionReview, or has to be read with care.
pub fn validate(body: &[u8], reading: Reading, terms: &Terms) -> Result<Review, Malformed> {
    let (asked, name, namespace, errors) = match decode(body, reading)? {
        Decoded::Readable(request) => {
            let (asked, errors) = (Asked::by(&request), jobset::validate(&request, terms));
            if errors.is_empty() {
                return Ok(Review::allow_with(asked, jobset::warnings(&request, terms)));
            }
            (asked, name(&request).to_owned(), request.namespace, errors)
        }
        Decoded::Unreadable { asked, errors, .. } if errors.is_empty() => return Ok(Review::allow(asked)),
        Decoded::Unreadable { asked, name, namespace, errors } => (asked, name, namespace, errors),
    };
    let namespace = namespace.unwrap_or_default();
    if let Some(suppressed) = log_limit::permit(&namespace) {
        let errors = errors.to_string();
        let [jobset, namespace, errors] = [&*name, &*namespace, &*errors].map(log_limit::beginning);
        info!(jobset, namespace, errors, suppressed, "refused");
    }
    Ok(Review::deny(asked, invalid(&name, &errors)))
}

impl Asked {
    fn by<K>(request: &AdmissionRequest<K>) -> Self {
        Self { uid: request.uid.clone(), operation: Some(request.operation.clone()) }
    }
}

impl Review {
    pub fn outcome(&self) -> Outcome {
        let verdict = match &self.response {
            _ if self.is_undecided => Verdict::Error,
            Response { allowed: true, .. } => Verdict::Allowed,
            Response { status: Some(status), .. } if status.code >= 500 => Verdict::Error,
            _ => Verdict::Denied,
        };
        Outcome { operation: self.operation.clone(), verdict, rejection: self.rejection }
    }

    fn of(asked: Asked, response: Response) -> Self {
        let Asked { uid, operation } = asked;
        let response = Response { uid, ..response };
        Self {
            api_version: META_API_VERSION_V1,
            kind: META_KIND,
            response,
            operation,
            rejection: None,
            is_undecided: false,
        }
    }

    fn allow(asked: Asked) -> Self {
        Self::allow_with(asked, Vec::new())
    }

    fn allow_with(asked: Asked, warnings: Vec<String>) -> Self {
        Self::of(asked, Response { allowed: true, warnings, ..Response::default() })
    }

    /// Lets an object through because nothing could be found out about it.
    fn undecided(asked: Asked, warning: String) -> Self {
        Self { is_undecided: true, ..Self::allow_with(asked, vec![warning]) }
    }

    /// Lets an object through as `after` instead of `before`.
    fn change<K: Serialize>(asked: Asked, before: &K, after: &K) -> Self {
        match patch::diff(before, after).and_then(|patch| serde_json::to_vec(&patch)) {
            Ok(patch) => {
                let (patch, patch_type) = (Some(ByteString(patch)), Some("JSONPatch"));
                Self::of(asked, Response { allowed: true, patch, patch_type, ..Response::default() })
            }
            Err(error) => Self::deny(asked, Status::failure(&error.to_string(), reason::INTERNAL_ERROR).with_code(500)),
        }
    }

    fn deny(asked: Asked, status: Status) -> Self {
        Self::of(asked, Response { allowed: false, status: Some(status), ..Response::default() })
    }
}

enum Decoded<K> {
    Readable(Box<AdmissionRequest<K>>),
    /// The object is not of its kind as this build knows it. Without errors, nothing depends on that.
    Unreadable {
        asked: Asked,
        name: String,
        namespace: Option<String>,
        errors: Errors,
    },
}

fn decode<K: Object>(body: &[u8], reading: Reading) -> Result<Decoded<K>, Malformed> {
    let read = |body: &str| {
        let (mut json, meter) = (serde_json::Deserializer::from_str(body), Meter::new(budget(body.len())));
        AdmissionReview::deserialize(Metered::new(&mut json, &meter))
            .and_then(|review| json.end().map(|()| review))
            .ok()
    };
    // All of it is found to be UTF-8 at once, which costs less than string by string.
    match str::from_utf8(body).ok().and_then(read) {
        Some(review) => request_of(review).map(Decoded::Readable),
        None if reading == Reading::Quick => Err(Malformed::Unread),
        // Either the review itself is malformed, or an object in it.
        None => unreadable::decode(body),
    }
}

fn request_of<K>(review: AdmissionReview<K>) -> Result<Box<AdmissionRequest<K>>, Malformed> {
    if review.kind != META_KIND || review.api_version != META_API_VERSION_V1 {
        return Err(Malformed::Version { kind: review.kind, api_version: review.api_version });
    }
    review.request.map(Box::new).ok_or(Malformed::NoRequest)
}

/// Name of the object, or the beginning of the name that the API server will give it.
fn name<K: Resource>(request: &AdmissionRequest<K>) -> &str {
    let metadata = request.object().map(Resource::meta);
    let generated = || metadata.and_then(|it| it.name.as_deref().or(it.generate_name.as_deref())).unwrap_or_default();
    if request.name.is_empty() { generated() } else { &request.name }
}

/// The refusal, as the API server itself refuses an object that breaks its schema.
fn invalid(name: &str, errors: &Errors) -> Status {
    let message = format!("JobSet.{} \"{name}\" is invalid: {}", jobset_api::GROUP, aggregate(errors));
    let (name, group, causes) = (name.to_owned(), jobset_api::GROUP.to_owned(), causes(errors));
    let details = StatusDetails { name, group, causes, ..details("JobSet") };
    Status::failure(&message, reason::INVALID).with_code(422).with_details(details)
}

/// Details about an object of this kind.
pub(crate) fn details(kind: &str) -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: kind.to_owned(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

pub(crate) fn causes(errors: &Errors) -> Vec<StatusCause> {
    let cause = |reason: &str, message: String, field: &str| StatusCause {
        reason: reason.to_owned(),
        message,
        field: field.to_owned(),
    };
    let shown = errors.iter().map(|it| cause(it.reason.as_str(), it.message.clone(), &it.field));
    shown.chain(more(errors).map(|more| cause("", more, ""))).collect()
}

/// One error as it is, several in brackets, as Kubernetes writes them.
pub(crate) fn aggregate(errors: &Errors) -> String {
    let texts: Vec<_> = errors.iter().map(ToString::to_string).chain(more(errors)).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// What is said of the errors that are only counted.
fn more(errors: &Errors) -> Option<String> {
    (errors.omitted() > 0).then(|| format!("and {} more errors", errors.omitted()))
}

#[cfg(test)]
mod tests {
    use jobset_api::validation::Path;

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
