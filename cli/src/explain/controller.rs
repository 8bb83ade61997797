//! No controller runs: none holds the Lease.

use jobset_api::LEASE;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Facts, Finding};
use crate::output::age;

/// A Lease is held until its age exceeds its duration by this factor. The margin is for clocks that differ.
const EXPIRY_FACTOR: i32 = 2;
/// Duration of a Lease that has none, in seconds.
const DEFAULT_DURATION: i32 = 15;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let advice = "Check that the controller runs: `kubectl get pods -A -l app.kubernetes.io/name=jobset-controller` \
                  or, for the Go JobSet, `kubectl get pods -n jobset-system`.";
    let ignored = facts.jobset.status.is_none();
    let Some(leases) = &facts.leases else {
        if !ignored {
            return Vec::new();
        }
        let what = "No controller has reconciled the JobSet: it has no status.";
        return vec![Finding::new("NoController", what, advice)];
    };
    if leases.iter().any(|lease| is_held(lease, facts)) {
        return Vec::new();
    }
    let newest = leases.iter().max_by_key(|lease| renewed(lease));
    let what = match newest {
        // A controller without leader election has no Lease.
        None if !ignored => return Vec::new(),
        None => format!("No controller runs: there is no Lease {LEASE}, and the JobSet has no status."),
        Some(lease) => {
            let since = age(renewed(lease), facts.now);
            let held = holder(lease).map_or_else(|| "not held".to_owned(), |holder| format!("held by {holder}"));
            let namespace = lease.metadata.namespace.as_deref().unwrap_or_default();
            format!("No controller runs: the Lease {namespace}/{LEASE} was renewed {since} ago ({held}).")
        }
    };
    vec![Finding::new("NoController", what, advice)]
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

fn renewed(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0)
}

fn is_held(lease: &Lease, facts: &Facts) -> bool {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(DEFAULT_DURATION);
    let limit = SignedDuration::from_secs(i64::from(seconds.saturating_mul(EXPIRY_FACTOR)));
    holder(lease).is_some() && renewed(lease).is_some_and(|renewed| facts.now.duration_since(renewed) <= limit)
}
