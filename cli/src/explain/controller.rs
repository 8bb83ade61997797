//! No controller leads: none holds the Lease.

use super::{Facts, Finding};
use crate::output::capitalized;

/// What the status says is old if no controller leads, so this finding comes first.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let advice = "Check that the controller runs: `kubectl get pods -A -l app.kubernetes.io/name=jobset-controller` \
                  or, for the Go JobSet, `kubectl get pods -n jobset-system`.";
    let what = absence(facts).map(|absent| format!("{}.", capitalized(&absent)));
    what.into_iter().map(|what| Finding::new("NoController", what, advice)).collect()
}

/// The same for a suspended JobSet, whose Jobs nobody suspends or resumes.
pub(super) fn check_suspended(facts: &Facts) -> Vec<Finding> {
    if facts.jobset.spec.is_suspended() { check(facts) } else { Vec::new() }
}

/// That no controller leads, and since when.
pub(super) fn absence(facts: &Facts) -> Option<String> {
    match &facts.leader {
        Some(leader) => leader.absence(facts.now),
        None if facts.jobset.status.is_none() => {
            Some("no controller has reconciled the JobSet: it has no status".to_owned())
        }
        None => None,
    }
}
