//! The rules of reconciliation: from the observed state of a JobSet to a [`Plan`].
//!
//! [`plan`] is a pure function: no clock, no client, no error. A problem with a child becomes a [`Note`] and never blocks
//! the JobSet. The status is the write-ahead log: a rule that restarts the JobSet, or that makes its workers advance to
//! another epoch, only writes the decision to the status. The next reconciliation reads the status and carries it out.

mod agent_stream;
mod attempts;
mod backoff;
mod barrier;
mod budget;
pub mod build;
mod cause;
mod children;
mod cordoned;
mod deadline;
pub mod epochs;
mod failure;
mod finished;
mod gate;
mod incident;
mod invalid;
mod job_end;
mod late_pods;
mod ledger;
mod leftovers;
mod lost_index;
mod lost_nodes;
mod members;
mod namespace;
mod no_progress;
mod nodes;
mod not_running;
mod notes;
mod orphans;
mod placement;
mod progress;
mod reconciliation;
mod recovery;
mod refused;
mod request;
mod resize;
mod restart;
mod restore;
mod returns;
mod settle;
mod skip;
mod stall;
mod start;
mod start_wait;
mod success;
mod successors;
mod support;
mod suspend;
mod tally;
#[cfg(test)]
mod tests;
mod ttl;
mod types;
mod why;
mod wrong_reports;

use std::ops::ControlFlow;

use jobset_store::Observed;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use reconciliation::Reconciliation;

pub use agent_stream::RECONNECT_TIME;
pub use barrier::{Barrier, barrier};
pub use finished::ENDED_JOB_DEADLINE;
pub use notes::merge as merge_notes;
pub use types::{
    Action, ExitClass, Fact, LONGEST_RESTART_BACKOFF, MEMORY_OF_NAMESPACE, Note, Plan, PodDeletion, Settings, Trigger,
};

/// The rules, in order. A rule that breaks ends the reconciliation.
fn rules(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    skip::if_being_deleted(reconciliation)?;
    skip::if_managed_by_another(reconciliation)?;
    ttl::delete_when_expired(reconciliation)?;
    namespace::delete_jobset_if_terminating(reconciliation)?;
    invalid::skip_if_unread(reconciliation)?;
    budget::annotate(reconciliation)?;
    restart::adopt_go_counts(reconciliation);
    tally::count_jobs(reconciliation);
    refused::set_condition(reconciliation);
    request::remember(reconciliation);
    finished::end_active_jobs(reconciliation)?;
    invalid::skip_if_invalid(reconciliation)?;
    invalid::warn_of_message_patterns(reconciliation);
    orphans::warn(reconciliation);
    gate::disable_in_place_restart(reconciliation);
    backoff::release(reconciliation);
    restart::delete_previous_attempts(reconciliation);
    deadline::track_start(reconciliation);
    deadline::enforce(reconciliation)?;
    nodes::expire(reconciliation);
    failure::apply_policy(reconciliation)?;
    success::complete(reconciliation)?;
    successors::release(reconciliation);
    children::ensure_claims(reconciliation);
    children::ensure_service(reconciliation);
    children::ensure_role_binding(reconciliation);
    placement::repair(reconciliation)?;
    lost_nodes::give_up_pods(reconciliation)?;
    attempts::track(reconciliation)?;
    suspend::suspend_jobs(reconciliation);
    request::carry_out(reconciliation)?;
    resize::resize(reconciliation)?;
    leftovers::report(reconciliation);
    late_pods::ask(reconciliation);
    start::create_and_resume(reconciliation)?;
    if reconciliation.in_place() {
        in_place_rules(reconciliation)?;
    }
    stall::report(reconciliation)?;
    epochs::lift_for_recreated(reconciliation);
    recovery::record(reconciliation);
    barrier::report_wait(reconciliation);
    not_running::report(reconciliation);
    start_wait::report(reconciliation);
    ControlFlow::Continue(())
}

/// The rules of a group that restarts in place.
fn in_place_rules(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    let is_suspended = reconciliation.is_suspended();
    support::set_condition(reconciliation);
    if !is_suspended {
        restore::epochs(reconciliation)?;
        nodes::reconsider::reconsider(reconciliation)?;
        nodes::strike_refusals(reconciliation);
        barrier::limit_failures(reconciliation)?;
        nodes::relax::replace_unschedulable(reconciliation)?;
        nodes::moves::carry_out(reconciliation);
        returns::replace(reconciliation)?;
        cordoned::leave(reconciliation)?;
    }
    members::adopt(reconciliation)?;
    members::join(reconciliation)?;
    if is_suspended { ControlFlow::Continue(()) } else { epochs::advance(reconciliation) }
}

/// Applies the rules to the observed state of a JobSet at the time `now`.
pub fn plan(observed: &Observed<'_>, settings: &Settings, now: &Time) -> Plan {
    let mut reconciliation = Reconciliation::new(observed, settings, now);
    // A rule that breaks has already written its result to the plan.
    let _ = rules(&mut reconciliation);
    agent_stream::report(&mut reconciliation);
    if reconciliation.changes_status() || ledger::is_outdated(&reconciliation) {
        progress::keep(&mut reconciliation);
        ledger::keep(&mut reconciliation);
    }
    reconciliation.into_plan()
}
