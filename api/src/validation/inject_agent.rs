//! The annotation that has admission add the agent.

use super::subject::Subject;
use crate::field::{Errors, Path};
use crate::injection::Shape;
use crate::labels::INJECT_AGENT;

/// Refuses a shape of the agent that there is not.
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

    use super::super::testing::{admissions, assert_one, in_place};

    #[test]
    fn only_the_two_shapes_of_the_agent_can_be_asked_for() {
        let annotated =
            |value: &str| in_place(&[("/metadata/annotations", json!({ "jobset.sigs.k8s.io/inject-agent": value }))]);
        for shape in ["Sidecar", "Supervisor"] {
            assert_eq!(admissions(&annotated(shape)), Vec::<String>::new());
        }
        for other in ["sidecar", "", "true"] {
            let expected = format!(
                "metadata.annotations[jobset.sigs.k8s.io/inject-agent]: Unsupported value: \"{other}\": supported \
                 values: \"Sidecar\", \"Supervisor\""
            );
            assert_one(&admissions(&annotated(other)), &expected);
        }
    }
}
