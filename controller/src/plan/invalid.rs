//! What admission would refuse but got in: named, and left alone. Nothing of it is started, changed or deleted.

use std::ops::ControlFlow;

use jobset_api::conditions;

use super::pass::Pass;
use super::success;

/// Longest message of a condition, in bytes: the API's limit is 32 kB, a reader's is less.
const LONGEST: usize = 2048;

pub(super) fn leave_alone(pass: &mut Pass<'_>) -> ControlFlow<()> {
    let Some(what) = pass.seen.invalid() else {
        pass.clear_condition(conditions::INVALID, "Valid", "nothing is wrong with the specification any more");
        return ControlFlow::Continue(());
    };
    let end = what.floor_char_boundary(LONGEST);
    let message = format!("left alone, because admission would refuse it: {}", &what[..end]);
    pass.set_condition(conditions::INVALID, true, "InvalidSpecification", &message);
    pass.warn("InvalidSpecification", message);
    // It may have been admitted by others, and have run: what it has come to is true all the same.
    success::complete_if_met(pass)?;
    ControlFlow::Break(())
}
