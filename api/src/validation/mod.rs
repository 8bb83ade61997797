//! Which JobSets are admitted: the rules of admission, the same for the webhook and for a check of a file without any
//! cluster. And which of those that are stored all the same can be carried out ([`cannot_run`]): the controller's part.
//!
//! The rules look at an object as it is stored, with the [`crate::defaults`] of admission: what is absent means what
//! Kubernetes takes it for. They neither see other objects nor change anything. What Kubernetes refuses in a Job template
//! for reasons of its own is left to Kubernetes.
//!
//! To read them is to read `RULES` for what is refused when it is new, `update` for what is changed, and `execution` for
//! what is not carried out; each file holds one rule and what it accepts and refuses. [`warnings`] are about what is
//! admitted. `syntax` has the grammars, `field` the words of errors.

mod agent;
mod child_names;
mod coordinator;
mod depends_on;
mod exclusive_placement;
mod execution;
mod failure_policy;
mod failure_reasons;
mod in_place;
mod inject_agent;
mod managed_by;
mod message_patterns;
mod network;
mod replicated_jobs;
mod resize;
mod restart_budget;
mod restart_rules;
mod rule;
mod single_jobs;
mod subject;
mod suspended;
mod targets;
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
pub use execution::{cannot_match, cannot_restart_in_place, cannot_run};
use rule::{Rule, apply};
use subject::Subject;
pub use warnings::warnings;

/// The rules, in the order in which their errors are reported. Each gets the path of `spec`.
const RULES: [Rule; 20] = [
    // Names and numbers of what will be created.
    replicated_jobs::check,
    child_names::check,
    network::check,
    coordinator::check,
    volume_claims::check,
    // Policies that refer to it.
    managed_by::check,
    depends_on::check,
    targets::check,
    failure_policy::check,
    failure_reasons::check,
    single_jobs::check,
    // Features that need all of it to fit together.
    in_place::check,
    exclusive_placement::check,
    // What would not be carried out as its author means it.
    message_patterns::check_new,
    inject_agent::check,
    restart_budget::check,
    restart_rules::check,
    agent::check,
    volume_mounts::check,
    exclusive_placement::check_label,
];

/// All that is wrong with a JobSet that is to be created.
pub fn validate_create(jobset: &JobSet, gates: Gates) -> Errors {
    let mut errors = Errors::default();
    check_new(jobset, gates, &mut errors);
    errors
}

fn check_new(jobset: &JobSet, gates: Gates, errors: &mut Errors) {
    apply(&RULES, &Subject::new(jobset, gates), errors);
}

/// All that is wrong with a change of a JobSet.
///
/// What was wrong before may stay so: rules are added over time, and an object that was admitted without them can still
/// be labelled, suspended and resumed. Nothing can become wrong, or wrong in another way.
pub fn validate_update(old: &JobSet, new: &JobSet, gates: Gates) -> Errors {
    let mut errors = Errors::default();
    // Some rules look at annotations.
    if old.spec == new.spec && old.metadata.annotations == new.metadata.annotations {
        return errors;
    }
    if !validate_create(new, gates).is_empty() {
        let mut previous = Errors::recorder();
        check_new(old, gates, &mut previous);
        let mut broken = previous.into_filter();
        check_new(new, gates, &mut broken);
        errors.append(broken);
    }
    update::check(old, new, gates, &Path::root("spec"), &mut errors);
    errors
}
