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
    use serde_json::json;

    use super::super::testing::rejects;

    #[test]
    fn negative_max_restarts_is_rejected() {
        let expected = "spec.failurePolicy.maxRestarts: Invalid value: -1: must not be negative";
        rejects(&[("/spec/failurePolicy", json!({ "maxRestarts": -1 }))], expected);
    }
}
