//! The rules of admission. The webhook applies them to requests, and `kubectl jobset validate` to files without a
//! cluster. The controller applies a part of them to stored JobSets ([`cannot_run`]).
//!
//! A rule checks an object as it is stored, with the [`crate::defaults`] of admission. An absent field has its default
//! in Kubernetes. Rules do no I/O and change nothing. Of a Job template, they check what is sure and cheap (`template`): other
//! errors are left to the API server.
//!
//! `RULES` are the rules for a new JobSet, `update` those for a change, and `execution` those for a stored JobSet. Each
//! other file has one rule and its tests. [`warnings`] and [`update_warnings`] apply to JobSets that are admitted.

mod active_deadline;
mod additional_restarts;
mod agent;
mod annotations;
mod child_names;
mod coordinator;
mod depends_on;
mod durations;
mod exclusive_placement;
mod execution;
mod failure_policy;
mod failure_reasons;
mod gangs;
mod in_place;
mod inject_agent;
mod lone_restarts;
mod managed_by;
mod message_patterns;
mod network;
mod nodes;
mod overwritten;
mod refused_pods;
mod replicated_jobs;
mod resize;
mod restart_backoff;
mod restart_budget;
mod restart_request;
mod restart_rules;
mod rule;
mod single_jobs;
mod stalls;
mod subject;
mod suspended;
mod targets;
mod template;
#[cfg(test)]
mod testing;
mod unchanged;
mod update;
mod volume_claims;
mod volume_mounts;
mod warnings;

use crate::JobSet;
pub use crate::field::{Error, Errors, Path, Reason};
use crate::gates::Gates;
pub use exclusive_placement::check_allowed_topology_keys;
pub use execution::{cannot_match, cannot_restart_in_place, cannot_run};
use rule::{Rule, apply};
use subject::Subject;
pub(crate) use unchanged::{AS_CREATED, AS_CREATED_OR_MORE_RESTARTS};
pub use warnings::{update_warnings, warnings};

/// The rules for a new JobSet, in the order in which their errors are reported.
const RULES: [Rule; 29] = [
    // Names and numbers of child objects.
    replicated_jobs::check,
    child_names::check,
    network::check,
    coordinator::check,
    volume_claims::check,
    // Policies that refer to replicatedJobs.
    managed_by::check,
    active_deadline::check,
    depends_on::check,
    targets::check,
    failure_policy::check,
    restart_backoff::check,
    failure_reasons::check,
    single_jobs::check,
    // Features that depend on several fields.
    in_place::check,
    exclusive_placement::check,
    // Values that would not have the effect that the user expects.
    message_patterns::check,
    inject_agent::check,
    restart_budget::check,
    additional_restarts::check,
    durations::check,
    nodes::check,
    stalls::check,
    restart_request::check,
    restart_rules::check,
    agent::check,
    volume_mounts::check,
    refused_pods::check,
    exclusive_placement::check_label,
    template::check,
];

/// The errors of a JobSet that is created. Empty if admission accepts it.
pub fn validate_create(jobset: &JobSet, gates: Gates) -> Errors {
    let mut errors = Errors::default();
    check_new(jobset, gates, &mut errors);
    errors
}

fn check_new(jobset: &JobSet, gates: Gates, errors: &mut Errors) {
    apply(&RULES, &Subject::new(jobset, gates), errors);
}

/// The errors of an update of a JobSet. Empty if admission accepts it.
///
/// Errors of the old object are not reported: rules are added over time, and an object that was admitted before must
/// still accept labels, suspension and resumption. An error that is new or has another text is reported.
pub fn validate_update(old: &JobSet, new: &JobSet, gates: Gates) -> Errors {
    let mut errors = Errors::default();
    // Some rules read annotations.
    if old.spec == new.spec && old.metadata.annotations == new.metadata.annotations {
        return errors;
    }
    if !validate_create(new, gates).is_empty() {
        let mut previous = Errors::recorder();
        check_new(old, gates, &mut previous);
        let mut introduced = previous.into_filter();
        check_new(new, gates, &mut introduced);
        errors.append(introduced);
    }
    update::check(old, new, gates, &Path::root("spec"), &mut errors);
    errors
}
