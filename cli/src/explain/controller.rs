//! No controller leads: none holds the Lease.

use super::{Facts, Finding};
use crate::output::capitalized;

/// What the status says is old if no controller leads, so this finding comes first.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let advice = "Check that the controller runs: `kubectl get pods -A -l app.kubernetes.io/name=jobset-controller` \
                  or, for the Go JobSet, `kubectl get pods -n jobset-system`.";
    let absent = facts.leader.as_ref().and_then(|leader| leader.absence(facts.now));
    let what = match (&facts.leader, absent) {
        (_, Some(absent)) => format!("{}.", capitalized(&absent)),
        (None, None) if facts.jobset.status.is_none() => {
            "No controller has reconciled the JobSet: it has no status.".to_owned()
        }
        _ => return Vec::new(),
    };
    vec![Finding::new("NoController", what, advice)]
}
