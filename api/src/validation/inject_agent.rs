//! The annotation for the injection of the agent.

use super::annotations::meant;
use super::subject::Subject;
use super::warnings::Warnings;
use crate::field::{Errors, Path};
use crate::injection::Shape;
use crate::labels::INJECT_AGENT;
use crate::{JobSet, RestartStrategy};

const WHEN_CREATED: &str = "the change has no effect: the agent is added only when the JobSet is created. Delete the JobSet \
                            and create it again";

/// The annotation, if it names no shape of the agent.
pub(super) fn unknown_shape(jobset: &JobSet) -> Option<&str> {
    jobset.annotation(INJECT_AGENT).filter(|name| Shape::of(name).is_none())
}

/// The key of an annotation that is probably meant to be this one, which the JobSet does not have.
pub(super) fn misspelt(jobset: &JobSet) -> Option<&str> {
    let annotations = jobset.metadata.annotations.as_ref().filter(|it| !it.contains_key(INJECT_AGENT))?;
    annotations.keys().map(String::as_str).find(|key| meant(key, &[INJECT_AGENT]).is_some())
}

/// Rejects an unknown shape of the agent.
pub(super) fn check(subject: &Subject<'_>, _spec: &Path<'_>, errors: &mut Errors) {
    if let Some(unknown) = unknown_shape(subject.jobset) {
        errors.not_supported(&Path::annotation(INJECT_AGENT), unknown, "\"Sidecar\", \"Supervisor\"");
    }
}

/// Warns of a change of the shape: it has no effect, because the Job templates are immutable. With another restart strategy
/// the annotation never has an effect.
pub(super) fn warn_of_update(old: &JobSet, new: &JobSet, warnings: &mut Warnings) {
    let shape = |jobset: &JobSet| jobset.annotation(INJECT_AGENT).and_then(Shape::of);
    if new.spec.restart_strategy() == RestartStrategy::InPlaceRestart && shape(old) != shape(new) {
        warnings.push(&Path::annotation(INJECT_AGENT), WHEN_CREATED);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{admission_errors, assert_one, changed, in_place, jobset, read};
    use super::super::{update_warnings, validate_update};
    use crate::gates::Gates;

    const FIELD: &str = "metadata.annotations[jobset.sigs.k8s.io/inject-agent]";

    #[test]
    fn misspelt_annotation_is_named_where_a_jobset_lacks_its_agent() {
        let misspelt = in_place(&[("/metadata/annotations", json!({ "jobset.sigs.k8s.io/inject-agnet": "Sidecar" }))]);
        assert_eq!(admission_errors(&misspelt), Vec::<String>::new(), "it has an agent of its own");
        let init = "/spec/replicatedJobs/1/template/spec/template/spec/initContainers";
        let expected = "metadata.annotations[jobset.sigs.k8s.io/inject-agnet]: Forbidden: no agent is added: the annotation is \
                        jobset.sigs.k8s.io/inject-agent";
        let without = changed(misspelt, &[(init, Value::Null)]);
        let errors = admission_errors(&without);
        assert_eq!((errors.len(), errors[0].as_str()), (2, expected), "{errors:?}");
        let renamed = changed(
            without.clone(),
            &[("/metadata/annotations", json!({ "jobset.sigs.k8s.io/inject-agent": "Sidecar" }))],
        );
        let updated = validate_update(&read(&without), &read(&renamed), Gates::default());
        assert!(updated.is_empty(), "a stored JobSet may follow the advice: {updated}");
    }

    fn with(object: Value, shape: &Value) -> Value {
        let annotations = if shape.is_null() { json!({}) } else { json!({ "jobset.sigs.k8s.io/inject-agent": shape }) };
        changed(object, &[("/metadata/annotations", annotations)])
    }

    #[rstest]
    #[case::kept(json!("Sidecar"), json!("Sidecar"), false)]
    #[case::unknown_corrected(json!("x"), json!("Sidecar"), true)]
    fn annotation_update_in_place_gets_warning(#[case] old: Value, #[case] new: Value, #[case] is_warned: bool) {
        let found = |object: &Value| {
            let (old, new) = (read(&with(object.clone(), &old)), read(&with(object.clone(), &new)));
            assert_eq!(validate_update(&old, &new, Gates::default()).to_string(), "");
            update_warnings(&old, &new)
        };
        if is_warned {
            assert_one(&found(&in_place(&[])), &format!("{FIELD}: the change has no effect: the agent is added only"));
        } else {
            assert_eq!(found(&in_place(&[])), Vec::<String>::new());
        }
        let of_other_strategy = found(&jobset(&[]));
        assert!(of_other_strategy.iter().all(|it| it.contains("no agent is added with")), "{of_other_strategy:?}");
    }
}
