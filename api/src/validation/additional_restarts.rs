//! The annotation for restarts beyond `maxRestarts`. Unlike `maxRestarts`, it can change while the JobSet runs.

use super::subject::Subject;
use super::warnings::Warnings;
use crate::field::{Errors, Path};
use crate::labels::ADDITIONAL_RESTARTS;
use crate::{JobSet, JobSetStatus, RestartBudget, Scope};

const NUMBER: &str = "must be a number from 0 to 2147483647 in decimal: it is added to spec.failurePolicy.maxRestarts";
const FINISHED: &str = "the JobSet has finished, and more restarts do not start it again. Delete the JobSet and create it \
                        again, with a larger spec.failurePolicy.maxRestarts";
const NO_POLICY: &str = "has no effect without spec.failurePolicy: the first failed Job fails the JobSet";

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<i32>().is_ok()
}

/// Rejects a value that is no such number.
pub(super) fn check(subject: &Subject<'_>, _spec: &Path<'_>, errors: &mut Errors) {
    if let Some(malformed) = subject.jobset.annotation(ADDITIONAL_RESTARTS).filter(|text| !is_number(text)) {
        errors.invalid(&Path::annotation(ADDITIONAL_RESTARTS), malformed, NUMBER);
    }
}

/// Rejects a change that leaves fewer restarts than are spent, and more restarts for a JobSet that has finished.
pub(super) fn check_update(old: &JobSet, new: &JobSet, errors: &mut Errors) {
    let [before, after] = [old, new].map(|jobset| jobset.annotation(ADDITIONAL_RESTARTS));
    // `check` rejects a malformed number.
    if before == after || after.is_some_and(|text| !is_number(text)) {
        return;
    }
    let path = Path::annotation(ADDITIONAL_RESTARTS);
    let Some(status) = &old.status else { return };
    if status.is_finished() {
        if new.additional_restarts() > old.additional_restarts() {
            errors.forbidden(&path, FINISHED);
        }
        return;
    }
    let (scope, spent) = most_spent(old, status);
    if new.allowed_restarts() < spent {
        let limit = new.spec.max_restarts();
        let least = spent.saturating_sub(limit);
        let required =
            format_args!("must be at least {least}: {spent} restarts{scope} are spent, and maxRestarts is {limit}");
        errors.wrong(&path, after, required);
    }
}

/// What has spent most of its budget, in words, and the number of its restarts. One budget for all needs no words.
fn most_spent(jobset: &JobSet, status: &JobSetStatus) -> (String, i32) {
    let budget = RestartBudget::of(jobset);
    let (scope, spent) = budget.most_spent(status);
    let scope = match (budget, scope) {
        (RestartBudget::Shared, Scope::JobSet) => String::new(),
        (_, scope) => format!(" of {}", scope.describe(jobset.metadata.name.as_deref().unwrap_or_default())),
    };
    (scope, spent)
}

/// Warns of a number without effect.
pub(super) fn warn(subject: &Subject<'_>, warnings: &mut Warnings) {
    if subject.jobset.annotation(ADDITIONAL_RESTARTS).is_some() && subject.spec.failure_policy.is_none() {
        warnings.push(&Path::annotation(ADDITIONAL_RESTARTS), NO_POLICY);
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

    const FIELD: &str = "metadata.annotations[jobset.sigs.k8s.io/additional-restarts]";

    /// A JobSet with maxRestarts 3, this number of additional restarts, and this status.
    fn annotated(number: &Value, status: &Value) -> Value {
        let annotations = if number.is_null() { json!({}) } else { json!({ ADDITIONAL_RESTARTS: number }) };
        jobset(&[("/metadata/annotations", annotations), ("/status", status.clone())])
    }

    #[rstest]
    #[case::signed("+1")]
    #[case::fraction("1.5")]
    #[case::space(" 1")]
    #[case::other_digits("١")]
    fn additional_restarts_that_are_no_number_are_rejected(#[case] number: &str) {
        let object = annotated(&json!(number), &Value::Null);
        assert_one(&admission_errors(&object), &format!("{FIELD}: Invalid value: {number:?}: must be a number from 0"));
        assert!(cannot_run(&read(&object)).is_empty(), "a stored JobSet runs");
    }

    #[rstest]
    #[case::raised(json!("1"), json!("5"), 4)]
    #[case::no_number_corrected(json!("x"), json!("0"), 3)]
    #[case::to_the_largest(json!(null), json!("2147483647"), 3)]
    fn additional_restarts_update_leaves_what_is_spent(#[case] old: Value, #[case] new: Value, #[case] spent: i32) {
        let status = json!({ "restartsCountTowardsMax": spent });
        let (old, new) = (read(&annotated(&old, &status)), read(&annotated(&new, &status)));
        assert_eq!(validate_update(&old, &new, Gates::default()).to_string(), "");
    }
}
