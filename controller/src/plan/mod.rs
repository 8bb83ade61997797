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
mod unsupported;

use std::ops::ControlFlow;

use jobset_api::{JobSetStatus, conditions};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::observe::Observed;
use crate::store::{Finished, JobView};

/// What shall be done for a JobSet.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The status to store, if it differs from the stored one.
    pub status: JobSetStatus,
    /// Requests to carry out, in order, before the status is written.
    pub actions: Vec<Action>,
    /// What to tell the user once the status is written.
    pub notes: Vec<Note>,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create a Job.
    CreateJob(Box<Job>),
    /// Delete a Job and its Pods; the Job stays until they are gone.
    DeleteJob {
        /// Name of the Job.
        name: String,
        /// Its UID: another Job of that name is left alone.
        uid: String,
    },
    /// Create a Service.
    CreateService(Box<Service>),
}

/// Something that the user should know: an Event on the JobSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// Whether it is a Warning.
    pub warning: bool,
    /// Reason, in CamelCase.
    pub reason: &'static str,
    /// Message.
    pub message: String,
}

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
pub fn plan(seen: &Observed, now: &Time) -> Plan {
    let mut pass = Pass { seen, now, status: seen.status(), actions: Vec::new(), notes: Vec::new() };
    // A broken pass has written all that it had to say.
    let _ = rules(&mut pass);
    Plan { status: pass.status, actions: pass.actions, notes: pass.notes }
}

/// One pass of the rules: what they read, and what they have decided so far.
struct Pass<'a> {
    seen: &'a Observed,
    now: &'a Time,
    status: JobSetStatus,
    actions: Vec<Action>,
    notes: Vec<Note>,
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
