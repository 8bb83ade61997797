//! `activeDeadlineSeconds` (KEP-1186): fails a JobSet that is active for too long.
//!
//! | event | `status.startTime` |
//! |---|---|
//! | first reconciliation that is not suspended, or resume | now |
//! | suspension | removed |
//! | restart of the whole JobSet after a failure, by recreation or in place | now |
//! | restart of single Jobs or of a replicatedJob, resize | unchanged |
//!
//! A restart in place recreates no Job, and `status.restarts` does not count it. It is a fresh run of all workers all the same,
//! so the time begins again with it, as it would if the same failure recreated the Jobs.
//!
//! With the feature gate JobSetActiveDeadlineSeconds off, the rules do nothing.

use std::ops::ControlFlow;

use jobset_api::conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::reconciliation::Reconciliation;
use crate::success;
use crate::types::Fact;

/// Sets the time at which the JobSet became active, and removes it while the JobSet is suspended.
pub(super) fn track_start(reconciliation: &mut Reconciliation<'_>) {
    if !reconciliation.settings.gates.job_set_active_deadline_seconds {
        return;
    }
    if reconciliation.is_suspended() {
        reconciliation.status.start_time = None;
    } else if reconciliation.status.start_time.is_none() {
        reconciliation.status.start_time = Some(whole_seconds(reconciliation.now.0));
    }
}

/// A restart of the whole JobSet begins: the time counts from now on.
pub(super) fn begin_again(reconciliation: &mut Reconciliation<'_>) {
    if reconciliation.settings.gates.job_set_active_deadline_seconds && reconciliation.status.start_time.is_some() {
        reconciliation.status.start_time = Some(whole_seconds(reconciliation.now.0));
    }
}

/// Ends a JobSet whose deadline has passed.
///
/// The rule comes before the failure policy, which could restart the JobSet and so give it another deadline. A JobSet that meets
/// its success policy has completed, although its deadline has passed. The next reconciliation deletes the Jobs that still run.
pub(super) fn enforce(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let Some((seconds, due)) = deadline(reconciliation) else { return ControlFlow::Continue(()) };
    if !reconciliation.is_due(due) {
        return ControlFlow::Continue(());
    }
    success::complete_if_met(reconciliation)?;
    if success::is_decided(reconciliation) {
        return ControlFlow::Continue(());
    }
    reconciliation.facts.push(Fact::DeadlineExceeded);
    let message = format!("JobSet was active for longer than the specified deadline of {seconds}s");
    reconciliation.fail(conditions::DEADLINE_EXCEEDED, message)
}

/// The deadline in seconds, and when it passes. `None` if the JobSet has no deadline or is suspended. A start in the future, by
/// another clock, counts from then on. A deadline beyond the range of the time type never passes.
fn deadline(reconciliation: &Reconciliation<'_>) -> Option<(i64, Timestamp)> {
    let spec = &reconciliation.observed.jobset.spec;
    let is_on = reconciliation.settings.gates.job_set_active_deadline_seconds && !spec.is_suspended();
    let seconds = spec.active_deadline_seconds.filter(|_| is_on)?;
    let Time(start) = reconciliation.status.start_time.as_ref()?;
    Some((seconds, start.checked_add(SignedDuration::from_secs(seconds)).ok()?))
}

/// The time as the status stores it.
fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}
