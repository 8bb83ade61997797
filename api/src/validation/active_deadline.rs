//! The time that the JobSet may be active (KEP-1186). It may change at any time.

use super::subject::Subject;
use crate::field::{Errors, Path};

const POSITIVE: &str = "must be at least 1 second: leave it out for no limit";
const GATE_OFF: &str = "must not be set or changed while the feature gate JobSetActiveDeadlineSeconds is off: start controller \
                        and webhook with --feature-gates=JobSetActiveDeadlineSeconds=true, or remove the field";

/// Rejects a deadline while the feature gate is off. An update reports only errors that are new: a deadline that was stored
/// before may stay as it is, and be removed.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let Some(seconds) = subject.spec.active_deadline_seconds else { return };
    let path = spec.child("activeDeadlineSeconds");
    if seconds < 1 {
        errors.invalid(&path, seconds, POSITIVE);
    } else if !subject.gates.job_set_active_deadline_seconds {
        errors.invalid(&path, seconds, GATE_OFF);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{assert_one, jobset, read};
    use super::super::{validate_create, validate_update};
    use crate::gates::Gates;

    const FIELD: &str = "/spec/activeDeadlineSeconds";

    fn on() -> Gates {
        Gates { job_set_active_deadline_seconds: true, ..Gates::default() }
    }

    fn created(seconds: &Value) -> Vec<String> {
        let object = jobset(&[(FIELD, seconds.clone())]);
        validate_create(&read(&object), on()).iter().map(ToString::to_string).collect()
    }

    #[rstest]
    #[case::one_second(json!(1))]
    #[case::longer_than_any_jobset_lives(json!(i64::MAX))]
    #[case::none(Value::Null)]
    fn deadline_on_creation_is_accepted(#[case] seconds: Value) {
        assert_eq!(created(&seconds), Vec::<String>::new());
    }

    #[rstest]
    #[case::zero(json!(0), "spec.activeDeadlineSeconds: Invalid value: 0: must be at least 1 second")]
    #[case::negative(json!(-5), "spec.activeDeadlineSeconds: Invalid value: -5: must be at least 1 second")]
    fn deadline_on_creation_is_rejected(#[case] seconds: Value, #[case] expected: &str) {
        assert_one(&created(&seconds), expected);
    }

    #[rstest]
    #[case::raised(json!(60), json!(90))]
    #[case::lowered(json!(60), json!(1))]
    #[case::added(Value::Null, json!(60))]
    #[case::removed(json!(60), Value::Null)]
    fn deadline_of_running_jobset_changes_with_gate_on(#[case] old: Value, #[case] new: Value) {
        let of = |seconds: Value| read(&jobset(&[(FIELD, seconds)]));
        assert_eq!(validate_update(&of(old), &of(new), on()).to_string(), "");
    }
}
