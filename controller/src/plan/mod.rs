//! The rules: from what was observed of a JobSet to what shall be done.
//!
//! [`plan`] is a pure function: no clock, no client, no error. What is wrong with a child becomes a [`Note`]; it never
//! blocks the JobSet. The status is the write-ahead log: a rule that restarts the JobSet, or makes its workers advance to
//! another epoch, only says so in it, and the next pass, which reads that back, carries it out.

mod barrier;
mod claims;
pub mod epochs;
mod failure;
mod finished;
mod gate;
mod incident;
mod invalid;
mod members;
mod namespace;
mod pass;
mod permissions;
mod placement;
mod recovery;
mod refused;
mod resize;
mod restart;
mod restore;
mod service;
mod skip;
mod start;
mod strays;
mod success;
mod support;
mod suspend;
mod tally;
#[cfg(test)]
mod tests;
mod ttl;
mod types;
mod unreachable;
mod waiting;

use std::ops::ControlFlow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::observe::Observed;
use pass::Pass;

pub use types::{Action, ExitClass, Fact, Note, Plan, PodDeletion, Settings, Trigger};
pub use waiting::{Barrier, barrier};

/// The rules, in order. A rule that breaks ends the pass.
fn rules(pass: &mut Pass<'_>) -> ControlFlow<()> {
    skip::if_being_deleted(pass)?;
    skip::if_managed_by_another(pass)?;
    ttl::delete_when_due(pass)?;
    namespace::delete_with_it(pass)?;
    tally::jobs(pass);
    refused::name(pass);
    finished::delete_what_still_runs(pass)?;
    invalid::leave_alone(pass)?;
    invalid::name_patterns(pass);
    strays::name(pass);
    gate::disable_in_place_restart(pass);
    restart::delete_previous_attempts(pass);
    failure::apply_policy(pass)?;
    success::complete(pass)?;
    claims::ensure(pass);
    service::ensure(pass);
    permissions::ensure(pass);
    placement::repair(pass)?;
    unreachable::force_delete(pass);
    suspend::stop(pass);
    resize::resize(pass)?;
    start::in_order(pass)?;
    support::name_what_cannot_restart_in_place(pass);
    restore::epochs(pass)?;
    barrier::watch(pass)?;
    epochs::advance(pass)?;
    epochs::let_through(pass);
    recovery::note(pass);
    ControlFlow::Continue(())
}

/// Applies the rules to what was observed.
pub fn plan(seen: &Observed<'_>, settings: &Settings, now: &Time) -> Plan {
    let mut pass = Pass::new(seen, settings, now);
    // A broken pass has written all that it had to say.
    let _ = rules(&mut pass);
    pass.into_plan()
}
