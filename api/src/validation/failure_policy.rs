//! Numbers of the failure policy, and names of its rules.

use std::borrow::Cow;
use std::collections::HashSet;

use super::subject::Subject;
use crate::effective::default_rule_name;
use crate::field::{Errors, Path};
use crate::syntax;

const UNIQUE: &str = "must be unique: conditions and events identify rules by their names";

/// Rejects numbers out of bounds, and names of rules that are malformed or not unique. A rule without a name has its default
/// name.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let Some(policy) = &subject.spec.failure_policy else { return };
    let path = spec.child("failurePolicy");
    errors.check_numbers(&path, &policy.numbers());
    let path = path.child("rules");
    let mut names = HashSet::with_capacity(policy.rules.len());
    for (index, rule) in policy.rules.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("name");
        let name = match rule.name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(default_rule_name(index)),
        };
        if !syntax::is_rule_name(&name) {
            let required = format_args!("{}, at most 128 characters", syntax::CONDITION_REASON);
            errors.invalid(&path, name, required);
        } else if !names.insert(name.clone()) {
            errors.duplicate(&path, name, UNIQUE);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{accepts, rejects};

    const POLICY: &str = "/spec/failurePolicy";

    fn rules(names: &[Option<&str>]) -> Value {
        let rules: Value = names.iter().map(|name| json!({ "name": name, "action": "FailJobSet" })).collect();
        json!({ "rules": rules })
    }

    #[rstest]
    #[case::nothing(json!({}))]
    #[case::no_restart(json!({ "maxRestarts": 0 }))]
    #[case::named(rules(&[Some("a"), Some("b_:c,d1")]))]
    #[case::not_named(rules(&[None, Some(""), Some("failurePolicyRule0x")]))]
    #[case::long(rules(&[Some(&"a".repeat(128))]))]
    fn failure_policy_with_valid_limit_and_names_is_accepted(#[case] policy: Value) {
        accepts(&[(POLICY, policy)]);
    }

    #[rstest]
    #[case::limit(json!({ "maxRestarts": -1 }), "spec.failurePolicy.maxRestarts: Invalid value: -1: must not be negative")]
    #[case::digit_first(rules(&[Some("1a")]), r#"spec.failurePolicy.rules[0].name: Invalid value: "1a": must consist of"#)]
    #[case::hyphen(rules(&[None, Some("a-b")]), r#"spec.failurePolicy.rules[1].name: Invalid value: "a-b": must consist of"#)]
    #[case::long(rules(&[Some(&"a".repeat(129))]), "spec.failurePolicy.rules[0].name: Invalid value:")]
    #[case::twice(rules(&[Some("a"), Some("b"), Some("a")]), r#"spec.failurePolicy.rules[2].name: Duplicate value: "a": must be unique"#)]
    #[case::twice_by_default(
        rules(&[Some("failurePolicyRule1"), None]),
        r#"spec.failurePolicy.rules[1].name: Duplicate value: "failurePolicyRule1": must be"#
    )]
    fn failure_policy_with_invalid_limit_or_name_is_rejected(#[case] policy: Value, #[case] expected: &str) {
        rejects(&[(POLICY, policy)], expected);
    }
}
