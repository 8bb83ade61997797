//! The form of a validation rule, and how rules are applied to a JobSet.

use super::subject::Subject;
use crate::field::{Errors, Path};

/// A rule. It gets the JobSet and the path of its `spec`, and adds the errors that it finds.
pub(super) type Rule = fn(&Subject<'_>, &Path<'_>, &mut Errors);

pub(super) fn apply(rules: &[Rule], subject: &Subject<'_>, errors: &mut Errors) {
    let spec = Path::root("spec");
    for rule in rules {
        rule(subject, &spec, errors);
    }
}
