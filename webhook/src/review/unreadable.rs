//! Reviews in which something cannot be read: which object it is, and where in it. They are rare, and may be made so on
//! purpose; so they are read one at a time, with care for memory.

use jobset_api::validation::{Errors, Path};
use jobset_api::weight::{Meter, Metered};
use kube::core::admission::Operation;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Asked, Decoded, Malformed, request_of};
use crate::limits::LARGE;
use crate::party::text_at;
use crate::strict::{BUDGET, budget};
use crate::wire::{AdmissionReview, Object};

const WHOLE_OBJECT: &str = "request.object";
const OBJECT: &str = "request.object.";
const OLD_OBJECT: &str = "request.oldObject";

/// What has to be known of any review.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    request: Request,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Request {
    uid: String,
    operation: Option<Operation>,
    #[serde(deserialize_with = "text")]
    name: String,
    namespace: Option<String>,
    #[serde(deserialize_with = "text")]
    sub_resource: String,
}

/// Whether the object is being deleted, as far as that can be read.
fn is_leaving(body: &[u8]) -> bool {
    text_at(&["request", "object", "metadata", "deletionTimestamp"], body).is_some_and(|text| !text.is_empty())
}

/// Text, or none.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads what can be read. Of a large body no tree is made, which takes up to a hundred times as much memory.
pub(super) fn decode<K: Object>(body: &[u8]) -> Result<Decoded<K>, Malformed> {
    if body.len() > LARGE {
        return without_a_tree(body);
    }
    by_tree(serde_json::from_slice(body).map_err(Malformed::Json)?)
}

fn without_a_tree<K: Object>(body: &[u8]) -> Result<Decoded<K>, Malformed> {
    let Head { request } = serde_json::from_slice(body).map_err(Malformed::Json)?;
    let (mut json, meter) = (serde_json::Deserializer::from_slice(body), Meter::new(budget(body.len())));
    let errors = match serde_path_to_error::deserialize::<_, AdmissionReview<K>>(Metered::new(&mut json, &meter)) {
        Ok(review) => return request_of(review).map(Decoded::Readable),
        Err(_) if !request.sub_resource.is_empty() || is_leaving(body) => Errors::default(),
        Err(error) => errors(error, None)?,
    };
    let asked = Asked { uid: request.uid, operation: request.operation };
    Ok(Decoded::Unreadable { asked, name: request.name, namespace: request.namespace, errors })
}

/// An old object that cannot be read counts as none, so that it can be replaced by a better one; so does a new one that no
/// rule looks at.
fn by_tree<K: Object>(mut review: Value) -> Result<Decoded<K>, Malformed> {
    let read = |review: &Value| {
        let meter = Meter::new(BUDGET);
        serde_path_to_error::deserialize::<_, AdmissionReview<K>>(Metered::new(review, &meter))
    };
    let text = |pointer: &str| review.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let exempt = text("/request/subResource").is_some() || text("/request/object/metadata/deletionTimestamp").is_some();
    let name = text("/request/name").or(text("/request/object/metadata/name")).unwrap_or_default().to_owned();
    let uid = text("/request/uid").unwrap_or_default().to_owned();
    let namespace = text("/request/namespace").map(str::to_owned);
    let operation = review.pointer("/request/operation").and_then(|it| Operation::deserialize(it).ok());
    if exempt {
        review["request"]["object"] = Value::Null;
    }
    if read(&review).is_err_and(|error| error.path().to_string().starts_with(OLD_OBJECT)) {
        review["request"]["oldObject"] = Value::Null;
    }
    match read(&review) {
        Ok(review) => request_of(review).map(Decoded::Readable),
        Err(error) => {
            let (asked, errors) = (Asked { uid, operation }, errors(error, Some(&review))?);
            Ok(Decoded::Unreadable { asked, name, namespace, errors })
        }
    }
}

/// What is wrong with the object; an error where it is not the object.
fn errors(error: serde_path_to_error::Error<serde_json::Error>, review: Option<&Value>) -> Result<Errors, Malformed> {
    let path = error.path().to_string();
    let mut errors = Errors::default();
    if path == WHOLE_OBJECT {
        // Of what an object must have, the API server sees to all but this.
        errors.required(&Path::root("spec"), error.into_inner().to_string());
    } else if let Some(field) = path.strip_prefix(OBJECT) {
        let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
        let found = review.and_then(|review| review.pointer(&pointer));
        errors.invalid(&Path::root(field), found, error.into_inner().to_string());
    } else {
        return Err(Malformed::Json(error.into_inner()));
    }
    Ok(errors)
}
