//! Which JobSets can be carried out: the rules of admission, the same for the webhook that refuses an object, for the
//! controller that leaves one alone which got in without it, and for a check of a file without any cluster.
//!
//! The rules look at an object as it is stored, with the [`crate::defaults`] of admission: what is absent means what
//! Kubernetes takes it for. They neither see other objects nor change anything. What Kubernetes refuses in a Job template
//! for reasons of its own is left to Kubernetes.
//!
//! To read them is to read `RULES` for what can be carried out, `RULES_OF_CREATION` for what is refused besides when it is
//! new, and `update` for what is changed; each file holds one rule and what it accepts and refuses. [`warnings`] are about
//! what is admitted. `syntax` has the grammars, `field` the words of errors.

mod agent;
mod child_names;
mod coordinator;
mod depends_on;
mod exclusive_placement;
mod failure_policy;
mod failure_reasons;
mod field;
mod in_place;
mod inject_agent;
mod known;
mod managed_by;
mod message_patterns;
mod network;
mod quantity;
mod replicated_jobs;
mod resize;
mod restart_budget;
mod restart_rules;
mod single_jobs;
mod subject;
mod suspended;
mod syntax;
mod targets;
#[cfg(test)]
mod testing;
mod unchanged;
mod update;
mod volume_claims;
mod volume_mounts;
mod warnings;

use crate::JobSet;
use crate::gates::Gates;
pub use field::{Error, Errors, Path, Reason};
pub(crate) use quantity::nanos;
use subject::Subject;
pub use warnings::warnings;

type Rule = fn(&Subject<'_>, &Path<'_>, &mut Errors);

/// The rules, in the order in which their errors are reported. Each gets the path of `spec`.
const RULES: [Rule; 13] = [
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
];

/// More rules for what is created. What breaks them could be carried out, but not as its author means it; what was stored
/// without them is not left alone for that.
const RULES_OF_CREATION: [Rule; 7] = [
    message_patterns::check_new,
    inject_agent::check,
    restart_budget::check,
    restart_rules::check,
    agent::check,
    volume_mounts::check,
    exclusive_placement::check_label,
];

/// All for which a JobSet cannot be carried out.
///
/// Takes some microseconds for a JobSet of ordinary size, and longer only for message patterns, which it compiles: a
/// caller that asks again and again does well to remember the answer with `metadata.generation`.
pub fn validate(jobset: &JobSet, gates: Gates) -> Errors {
    let mut errors = Errors::default();
    check(&Subject::new(jobset, gates), &[message_patterns::check], &mut errors);
    errors
}

/// All that is wrong with a JobSet that is to be created.
pub fn validate_create(jobset: &JobSet, gates: Gates) -> Errors {
    let mut errors = Errors::default();
    check_new(jobset, gates, &mut errors);
    errors
}

fn check_new(jobset: &JobSet, gates: Gates, errors: &mut Errors) {
    check(&Subject::new(jobset, gates), &RULES_OF_CREATION, errors);
}

/// Applies the rules that hold always, and these.
fn check(subject: &Subject<'_>, more: &[Rule], errors: &mut Errors) {
    let spec = Path::root("spec");
    for rule in RULES.iter().chain(more) {
        rule(subject, &spec, errors);
    }
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
        let mut known = Errors::known();
        check_new(old, gates, &mut known);
        let mut broken = known.new_ones();
        check_new(new, gates, &mut broken);
        errors.append(broken);
    }
    update::check(old, new, gates, &Path::root("spec"), &mut errors);
    errors
}
