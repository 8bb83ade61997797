//! Skips a JobSet whose specification is invalid: sets the condition Invalid, and starts, changes and deletes nothing.
//!
//! `jobset_api::validation` defines which specifications are invalid here. Admission rejects more than those.

use std::ops::ControlFlow;

use jobset_api::{conditions, event};

use crate::reconciliation::Reconciliation;
use crate::{size, success};

/// Maximum length of a condition message, in bytes. The limit of the API is 32 kB; people read less.
const LONGEST: usize = 2048;

/// Leaves a JobSet alone whose specification was not read, because it takes too much memory or does not match the schema.
/// Nothing can be counted, and nothing but the condition is written.
pub(super) fn skip_if_unread(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let observed = reconciliation.observed;
    let Some(why) = observed.invalid().filter(|_| observed.is_unread()) else { return ControlFlow::Continue(()) };
    if !reconciliation.status.is_finished() {
        let message = format!("the JobSet is left alone, and its Jobs and Pods go on: {}", cut(why));
        if !observed.is_status_missing() {
            reconciliation.set_condition(conditions::INVALID, true, event::INVALID_SPECIFICATION, &message);
        }
        reconciliation.warn(event::INVALID_SPECIFICATION, message);
    }
    ControlFlow::Break(())
}

pub(super) fn skip_if_invalid(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let Some(what) = reconciliation.observed.invalid() else {
        if !size::report(reconciliation) {
            reconciliation.clear_condition(conditions::INVALID, "Valid", "the specification is valid");
        }
        return ControlFlow::Continue(());
    };
    let message = format!("the JobSet is left alone, because its specification is invalid: {}", cut(what));
    reconciliation.set_condition(conditions::INVALID, true, event::INVALID_SPECIFICATION, &message);
    reconciliation.warn(event::INVALID_SPECIFICATION, message);
    // The JobSet may have run before, under another controller: its success is still recorded.
    success::complete_if_met(reconciliation)?;
    ControlFlow::Break(())
}

/// Warns of message patterns that can never match. The rest of the failure policy is in effect.
pub(super) fn warn_of_message_patterns(reconciliation: &mut Reconciliation<'_>) {
    if let Some(what) = reconciliation.observed.unmatchable() {
        let message = format!("the failure policy ignores message patterns that can never match: {}", cut(what));
        reconciliation.warn(event::MESSAGE_PATTERN_INVALID, message);
    }
}

/// Cuts a long text to [`LONGEST`] bytes.
pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}
