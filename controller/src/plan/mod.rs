//! The rules: from what was observed of a JobSet to what shall be done.
//!
//! [`plan`] is a pure function: no clock, no client, no error. What is wrong with a child becomes a [`Note`]; it never
//! blocks the JobSet. The status is the write-ahead log: a rule that restarts the JobSet only raises a counter in it,
//! and the next pass, which reads the counter back, deletes what the previous attempt left.

mod create;
pub mod epochs;
mod failure;
mod finished;
mod restart;
mod service;
mod skip;
mod success;
mod tally;
#[cfg(test)]
mod tests;
mod types;
mod unsupported;

use std::ops::ControlFlow;

use jobset_api::{JobSetStatus, conditions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::observe::Observed;
use crate::store::{Finished, JobView};

pub use types::{Action, ExitClass, Fact, Note, Plan, PodDeletion, Settings, Trigger};

/// The rules, in order. A rule that breaks ends the pass.
fn rules(pass: &mut Pass<'_>) -> ControlFlow<()> {
    skip::unless_ours(pass)?;
    tally::jobs(pass);
    finished::delete_what_still_runs(pass)?;
    unsupported::refuse(pass)?;
    restart::delete_previous_attempt(pass);
    failure::apply_policy(pass)?;
    success::complete(pass)?;
    service::ensure(pass);
    create::missing_jobs(pass);
    epochs::advance(pass)
}

/// Applies the rules to what was observed.
pub fn plan(seen: &Observed, settings: &Settings, now: &Time) -> Plan {
    let status = seen.status();
    let mut pass =
        Pass { seen, settings, now, status, actions: Vec::new(), notes: Vec::new(), facts: Vec::new(), requeue: None };
    // A broken pass has written all that it had to say.
    let _ = rules(&mut pass);
    let Pass { status, actions, notes, facts, requeue, .. } = pass;
    Plan { status, actions, notes, facts, requeue }
}

/// One pass of the rules: what they read, and what they have decided so far.
struct Pass<'a> {
    seen: &'a Observed,
    settings: &'a Settings,
    now: &'a Time,
    status: JobSetStatus,
    actions: Vec<Action>,
    notes: Vec<Note>,
    facts: Vec<Fact>,
    requeue: Option<Timestamp>,
}

impl Pass<'_> {
    /// The JobSet's own Jobs of the current attempt that are not being deleted.
    fn current_jobs(&self) -> impl Iterator<Item = (&str, &JobView)> {
        let attempt = self.status.restarts;
        let current = move |job: &&JobView| !job.deleting && job.attempt.is_some_and(|of| of >= attempt);
        self.seen.jobs.iter().filter(move |(_, job)| current(job)).map(|(name, job)| (name.as_str(), job))
    }

    fn delete_job(&mut self, name: &str, uid: &str) {
        self.actions.push(Action::DeleteJob { name: name.to_owned(), uid: uid.to_owned() });
    }

    fn set_condition(&mut self, type_: &str, status: bool, reason: &str, message: &str) -> bool {
        conditions::set(&mut self.status.conditions, type_, status, reason, message, self.now)
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.notes.push(Note { warning: true, reason, message });
    }

    fn tell(&mut self, reason: &'static str, message: String) {
        self.notes.push(Note { warning: false, reason, message });
    }

    /// Fails the JobSet: final.
    fn fail(&mut self, reason: &'static str, message: String) -> ControlFlow<()> {
        conditions::FAILED.clone_into(&mut self.status.terminal_state);
        self.set_condition(conditions::FAILED, true, reason, &message);
        self.warn(reason, message);
        ControlFlow::Break(())
    }
}

/// Whether the Job has completed.
fn has_completed(job: &JobView) -> bool {
    job.finished == Some(Finished::Completed)
}
