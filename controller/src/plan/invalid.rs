//! What cannot be carried out: a JobSet of which nothing can is named, and left alone. Nothing of it is started, changed or
//! deleted. `jobset_api::validation` says what that is; admission refuses more.

use std::ops::ControlFlow;

use jobset_api::conditions;

use super::pass::Pass;
use super::success;

/// Longest message of a condition, in bytes: the API's limit is 32 kB, a reader's is less.
const LONGEST: usize = 2048;

pub(super) fn leave_alone(pass: &mut Pass<'_>) -> ControlFlow<()> {
    let Some(what) = pass.seen.invalid() else {
        pass.clear_condition(conditions::INVALID, "Valid", "the specification can be carried out");
        return ControlFlow::Continue(());
    };
    let message = format!("left alone, because it cannot be carried out: {}", cut(what));
    pass.set_condition(conditions::INVALID, true, "InvalidSpecification", &message);
    pass.warn("InvalidSpecification", message);
    // It may have been admitted by others, and have run: what it has come to is true all the same.
    success::complete_if_met(pass)?;
    ControlFlow::Break(())
}

/// Names the message patterns that match nothing: the rest of the failure policy is carried out.
pub(super) fn name_patterns(pass: &mut Pass<'_>) {
    if let Some(what) = pass.seen.unmatchable() {
        let message =
            format!("the failure policy is carried out without the patterns that match nothing: {}", cut(what));
        pass.warn("MessagePatternInvalid", message);
    }
}

/// The beginning of a text that is long.
pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}
