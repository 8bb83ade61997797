//! Decodes a JobSet as the API server does with `fieldValidation: Strict`, which `kubectl` uses: unknown fields are errors,
//! each with its path.

use jobset_api::JobSet;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

/// A reason why an object does not pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rejection {
    /// Path of the field; empty for the object as a whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    pub message: String,
}

/// The JobSet of an object, or the errors of its fields.
pub(super) fn read(object: &Value) -> Result<JobSet, Vec<Rejection>> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(object, &mut track);
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(path.to_string());
    // The caller has checked these fields, which the type does not have.
    let of_every_object = |path: &String| path == "apiVersion" || path == "kind";
    let jobset = JobSet::deserialize(serde_ignored::Deserializer::new(tracked, &mut note));
    unknown.retain(|path| !of_every_object(path));
    let mut rejections: Vec<Rejection> = unknown.iter().map(|path| unknown_field(path)).collect();
    match jobset {
        Ok(jobset) if rejections.is_empty() => Ok(jobset),
        Ok(_) => Err(rejections),
        Err(error) => {
            let field = track.path().to_string();
            rejections.push(Rejection { field, message: format!("Invalid value: {error}") });
            Err(rejections)
        }
    }
}

fn unknown_field(path: &str) -> Rejection {
    let message = "unknown field: check the spelling and the indentation";
    Rejection { field: bracketed(path), message: message.to_owned() }
}

/// The path `a.0.b` of serde_ignored in Kubernetes' form `a[0].b`.
fn bracketed(path: &str) -> String {
    let is_index = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    // serde_ignored writes a question mark for each value that may be absent.
    let parts = path.split('.').filter(|part| *part != "?");
    let written = parts.map(|part| if is_index(part) { format!("[{part}]") } else { format!(".{part}") });
    written.collect::<String>().trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bracketed_path_has_form_of_kubernetes() {
        assert_eq!(bracketed("spec.replicatedJobs.0.template.?.spec.x"), "spec.replicatedJobs[0].template.spec.x");
        assert_eq!(bracketed("x"), "x");
    }
}
