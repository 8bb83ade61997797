//! JobSets that specify more Jobs or Pods than one JobSet may have. Admission rejects them, but a JobSet may be stored without it.
//!
//! Nothing is created, resumed or resized for such a JobSet. What exists goes on: a group of Pods that restarts in place does so
//! as before.

use jobset_api::{conditions, event};

use crate::reconciliation::Reconciliation;

/// Says that the JobSet is too large, if it is.
pub(super) fn report(reconciliation: &mut Reconciliation<'_>) -> bool {
    let Some(excess) = excess(reconciliation) else { return false };
    let message = format!("no Job is created, resumed or resized: {excess}. What exists goes on");
    reconciliation.set_condition(conditions::INVALID, true, event::INVALID_SPECIFICATION, &message);
    reconciliation.warn(event::INVALID_SPECIFICATION, message);
    true
}

/// Whether nothing may be created, resumed or resized.
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
