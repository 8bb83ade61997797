//! The annotation for the injection of the agent.

use super::subject::Subject;
use crate::field::{Errors, Path};
use crate::injection::Shape;
use crate::labels::INJECT_AGENT;

/// Rejects an unknown shape of the agent.
pub(super) fn check(subject: &Subject<'_>, _spec: &Path<'_>, errors: &mut Errors) {
    let annotations = subject.jobset.metadata.annotations.as_ref();
    let found = annotations.and_then(|annotations| annotations.get(INJECT_AGENT));
    if let Some(found) = found.filter(|found| Shape::of(found).is_none()) {
        let annotations = Path::root("metadata.annotations");
        errors.not_supported(&annotations.key(INJECT_AGENT), found, "\"Sidecar\", \"Supervisor\"");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{admission_errors, assert_one, in_place};

    #[test]
    fn annotation_with_unknown_shape_is_rejected() {
        let annotated =
            |value: &str| in_place(&[("/metadata/annotations", json!({ "jobset.sigs.k8s.io/inject-agent": value }))]);
        for shape in ["Sidecar", "Supervisor"] {
            assert_eq!(admission_errors(&annotated(shape)), Vec::<String>::new());
        }
        for other in ["sidecar", "", "true"] {
            let expected = format!(
                "metadata.annotations[jobset.sigs.k8s.io/inject-agent]: Unsupported value: \"{other}\": supported \
                 values: \"Sidecar\", \"Supervisor\""
            );
            assert_one(&admission_errors(&annotated(other)), &expected);
        }
    }
}
