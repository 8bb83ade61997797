//! Reads a JobSet as strictly as the API server does with `fieldValidation: Strict`, which `kubectl` asks for: fields that
//! it does not know are named, each with its path.

use jobset_api::JobSet;
use serde::Deserialize as _;
use serde_json::Value;

use super::check::Refusal;

/// The JobSet of an object, or what keeps it from being one.
pub(super) fn read(object: &Value) -> Result<JobSet, Vec<Refusal>> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(object, &mut track);
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(path.to_string());
    // What the type is known by has been looked at before.
    let of_every_object = |path: &String| path == "apiVersion" || path == "kind";
    let jobset = JobSet::deserialize(serde_ignored::Deserializer::new(tracked, &mut note));
    unknown.retain(|path| !of_every_object(path));
    let mut refusals: Vec<Refusal> = unknown.iter().map(|path| unknown_field(path)).collect();
    match jobset {
        Ok(jobset) if refusals.is_empty() => Ok(jobset),
        Ok(_) => Err(refusals),
        Err(error) => {
            let field = track.path().to_string();
            refusals.push(Refusal { field, message: format!("Invalid value: {error}") });
            Err(refusals)
        }
    }
}

fn unknown_field(path: &str) -> Refusal {
    let message = "unknown field: there is none of this name here; look for a slip, or for wrong indentation";
    Refusal { field: bracketed(path), message: message.to_owned() }
}

/// `a.0.b`, as paths are written here, as Kubernetes writes it: `a[0].b`.
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
    fn paths_are_written_as_kubernetes_writes_them() {
        assert_eq!(bracketed("spec.replicatedJobs.0.template.?.spec.x"), "spec.replicatedJobs[0].template.spec.x");
        assert_eq!(bracketed("x"), "x");
    }
}
