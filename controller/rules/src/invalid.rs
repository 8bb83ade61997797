//! Skips a JobSet whose specification is invalid: sets the condition Invalid, and starts, changes and deletes nothing. Of a JobSet that
//! is only too large, what exists goes on.
//!
//! `jobset_api::validation` defines which specifications are invalid here. Admission rejects more than those.

use std::ops::ControlFlow;

use jobset_api::{conditions, event};

use crate::reconciliation::Reconciliation;
use crate::{request, success};

/// Maximum length of a condition message, in bytes. The limit of the API is 32 kB; people read less.
const LONGEST: usize = 2048;

/// Leaves a JobSet alone whose specification was not read, because it takes too much memory or does not match the schema.
/// Nothing can be counted, and nothing but the condition is written.
pub(super) fn skip_if_unread(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let observed = reconciliation.observed;
    let Some(why) = observed.invalid().filter(|_| observed.entry.is_unread()) else { return ControlFlow::Continue(()) };
    if !reconciliation.status.is_finished() {
        let message = format!("the JobSet is left alone, and its Jobs and Pods go on: {}", cut(why));
        if observed.entry.is_status_missing() {
            reconciliation.warn(event::INVALID_SPECIFICATION, message);
        } else {
            report(reconciliation, message);
            request::remember(reconciliation);
        }
    }
    ControlFlow::Break(())
}

pub(super) fn skip_if_invalid(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let Some(what) = reconciliation.observed.invalid() else {
        match excess(reconciliation) {
            Some(excess) => {
                let message = format!("no Job is created, resumed or resized: {excess}. What exists goes on");
                report(reconciliation, message);
            }
            None => {
                reconciliation.clear_condition(conditions::INVALID, "Valid", "the specification is valid");
            }
        }
        return ControlFlow::Continue(());
    };
    report(reconciliation, format!("the JobSet is left alone, because its specification is invalid: {}", cut(what)));
    // The JobSet may have run before, under another controller: its success is still recorded.
    success::complete_if_met(reconciliation)?;
    ControlFlow::Break(())
}

fn report(reconciliation: &mut Reconciliation<'_>, message: String) {
    reconciliation.set_condition(conditions::INVALID, event::INVALID_SPECIFICATION, &message);
    reconciliation.warn(event::INVALID_SPECIFICATION, message);
}

/// Warns of message patterns that can never match. The rest of the failure policy is in effect.
pub(super) fn warn_of_message_patterns(reconciliation: &mut Reconciliation<'_>) {
    if let Some(what) = reconciliation.observed.entry.findings().and_then(|it| it.unmatchable.as_deref()) {
        let message = format!("the failure policy ignores message patterns that can never match: {}", cut(what));
        reconciliation.warn(event::MESSAGE_PATTERN_INVALID, message);
    }
}

/// Cuts a long text to [`LONGEST`] bytes.
pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

/// Whether nothing may be created, resumed or resized: the JobSet has more Jobs or Pods than one may have. Admission rejects such
/// JobSets, but one may be stored without it.
pub(super) fn is_too_large(reconciliation: &Reconciliation<'_>) -> bool {
    excess(reconciliation).is_some()
}

fn excess(reconciliation: &Reconciliation<'_>) -> Option<String> {
    let (spec, limits) = (&reconciliation.observed.jobset.spec, reconciliation.settings.limits);
    let of = |what: &str, found: i64, limit: u32, flag: &str| {
        format!("the JobSet specifies {found} {what}, and may have {limit} (--max-{flag}-per-jobset of the controller)")
    };
    let jobs = limits.excess_jobs(spec).map(|found| of("Jobs", found, limits.jobs, "jobs"));
    jobs.or_else(|| Some(of("Pods", limits.excess_pods(spec)?, limits.pods, "pods")))
}
