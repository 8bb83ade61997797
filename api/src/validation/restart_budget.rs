//! The annotation for the restart budget ([`RestartBudget`]).
//!
//! It is immutable: the counters of one budget have no meaning for the other one.

use serde_json::Value;

use super::subject::Subject;
use super::unchanged;
use crate::field::{Errors, Path, shown};
use crate::labels::RESTART_BUDGET;
use crate::{JobSet, RestartBudget};

/// Rejects an unknown budget.
pub(super) fn check(subject: &Subject<'_>, _spec: &Path<'_>, errors: &mut Errors) {
    if let Some(unknown) = subject.jobset.annotation(RESTART_BUDGET).filter(|word| RestartBudget::named(word).is_none())
    {
        let supported = RestartBudget::ALL.map(|budget| shown(&budget.word())).join(", ");
        errors.not_supported(&Path::annotation(RESTART_BUDGET), unknown, supported);
    }
}

/// Rejects a change of the budget. A JobSet without the annotation may get the budget by which its restarts are
/// counted. The controller adds this annotation.
pub(super) fn check_update(old: &JobSet, new: &JobSet, reason: &str, errors: &mut Errors) {
    let path = Path::annotation(RESTART_BUDGET);
    let (before, after) = (RestartBudget::annotated(old), RestartBudget::annotated(new));
    if new.annotation(RESTART_BUDGET).is_some() && after.is_none() {
        // `check` rejects it.
        return;
    }
    let [old_word, new_word] = [before, after].map(|budget| budget.map(|budget| Value::from(budget.word())));
    match (before, after) {
        (Some(_), _) => unchanged::compare(old_word.as_ref(), new_word.as_ref(), &path, reason, errors),
        (None, Some(late)) if late != RestartBudget::of(old) => {
            let counted = RestartBudget::of(old).word();
            errors.invalid(&path, late.word(), format_args!("must be {} or absent, {reason}", shown(&counted)));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{admission_errors, assert_one, jobset, read};
    use super::super::{cannot_run, validate_update};
    use super::*;
    use crate::gates::Gates;

    const FIELD: &str = "metadata.annotations[jobset.sigs.k8s.io/restart-budget]";

    fn annotated(word: &Value) -> Value {
        let annotations = if word.is_null() { json!({}) } else { json!({ RESTART_BUDGET: word }) };
        jobset(&[("/metadata/annotations", annotations)])
    }

    #[test]
    fn budget_unknown_is_rejected_at_creation_and_runs_when_stored() {
        for word in ["Shared", "Separate"] {
            assert_eq!(admission_errors(&annotated(&json!(word))), Vec::<String>::new());
        }
        for word in ["shared", "", "PerJob"] {
            let expected =
                format!("{FIELD}: Unsupported value: \"{word}\": supported values: \"Shared\", \"Separate\"");
            assert_one(&admission_errors(&annotated(&json!(word))), &expected);
            assert!(cannot_run(&read(&annotated(&json!(word)))).is_empty());
        }
    }

    #[rstest]
    #[case::kept(json!("Shared"), json!("Shared"), "")]
    #[case::removed(json!("Separate"), json!(null), "Required value: field is immutable: must stay \"Separate\", as the JobSet was created")]
    #[case::to_unknown(json!("Shared"), json!("x"), "Unsupported value: \"x\": supported values")]
    #[case::added_unknown(json!(null), json!("x"), "Unsupported value: \"x\": supported values")]
    #[case::added_as_counted(json!(null), json!("Shared"), "")]
    #[case::added_other(json!(null), json!("Separate"), "Invalid value: \"Separate\": must be \"Shared\" or absent, as the JobSet was created")]
    #[case::unknown_removed(json!("x"), json!(null), "")]
    #[case::unknown_corrected(json!("x"), json!("Shared"), "")]
    #[case::unknown_changed_to_other(json!("x"), json!("Separate"), "Invalid value: \"Separate\": must be \"Shared\" or absent")]
    fn budget_update_keeps_what_jobset_is_counted_by(#[case] old: Value, #[case] new: Value, #[case] expected: &str) {
        let errors = |old: &Value, new: &Value| -> Vec<String> {
            let errors = validate_update(&read(old), &read(new), Gates::default());
            errors.iter().map(ToString::to_string).collect()
        };
        let found = errors(&annotated(&old), &annotated(&new));
        if expected.is_empty() {
            assert_eq!(found, Vec::<String>::new());
        } else {
            assert_one(&found, &format!("{FIELD}: {expected}"));
        }
    }
}
