//! No controller runs: none holds the Lease.

use jobset_api::LEASE;
use k8s_openapi::jiff::SignedDuration;

use super::{ControllerLease, Facts, Finding, Readable};
use crate::output::age;

/// A Lease is held until its age exceeds its duration by this factor. The margin is for clocks that differ.
const EXPIRY_FACTOR: i32 = 2;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let advice = "Check that the controller runs: `kubectl get pods -A -l app.kubernetes.io/name=jobset-controller` \
                  or, for the Go JobSet, `kubectl get pods -n jobset-system`.";
    let ignored = facts.jobset.status.is_none();
    let Readable::Known(leases) = &facts.leases else {
        if !ignored {
            return Vec::new();
        }
        let what = "No controller has reconciled the JobSet: it has no status.";
        return vec![Finding::new("NoController", what, advice)];
    };
    if leases.iter().any(|lease| is_held(lease, facts)) {
        return Vec::new();
    }
    let newest = leases.iter().max_by_key(|lease| lease.renewed);
    let what = match newest {
        // A controller without leader election has no Lease.
        None if !ignored => return Vec::new(),
        None => format!("No controller runs: there is no Lease {LEASE}, and the JobSet has no status."),
        Some(lease) => {
            let since = age(lease.renewed, facts.now);
            let holder = lease.holder.as_deref().filter(|holder| !holder.is_empty());
            let held = holder.map_or_else(|| "not held".to_owned(), |holder| format!("held by {holder}"));
            format!("No controller runs: the Lease {}/{LEASE} was renewed {since} ago ({held}).", lease.namespace)
        }
    };
    vec![Finding::new("NoController", what, advice)]
}

fn is_held(lease: &ControllerLease, facts: &Facts) -> bool {
    let holds = lease.holder.as_deref().is_some_and(|holder| !holder.is_empty());
    let limit = SignedDuration::from_secs(i64::from(lease.seconds.saturating_mul(EXPIRY_FACTOR)));
    holds && lease.renewed.is_some_and(|renewed| facts.now.duration_since(renewed) <= limit)
}
