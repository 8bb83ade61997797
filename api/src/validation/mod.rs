//! Which JobSets can be carried out: the rules of admission, the same for the webhook that refuses an object, for the
//! controller that leaves one alone which got in without it, and for a check of a file without any cluster.
//!
//! The rules look at an object as it is stored, with the [`crate::defaults`] of admission: what is absent means what
//! Kubernetes takes it for. They neither see other objects nor change anything. What Kubernetes refuses in a Job template
//! for reasons of its own is left to Kubernetes.
//!
//! To read them is to read `RULES` for what is created and `update` for what is changed; each file holds one rule and
//! what it accepts and refuses. `syntax` has the grammars, `field` the words of errors.

mod child_names;
mod coordinator;
mod depends_on;
mod exclusive_placement;
mod failure_policy;
mod failure_reasons;
mod field;
mod in_place;
mod managed_by;
mod message_patterns;
mod network;
mod quantity;
mod replicated_jobs;
mod resize;
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

use crate::JobSet;
use crate::gates::Gates;
pub use field::{Error, Errors, Path, Reason};
use subject::Subject;

type Rule = fn(&Subject<'_>, &Path<'_>, &mut Errors);

/// The rules, in the order in which their errors are reported. Each gets the path of `spec`.
const RULES: [Rule; 14] = [
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
    message_patterns::check,
    single_jobs::check,
    // Features that need all of it to fit together.
    in_place::check,
    exclusive_placement::check,
];

/// All that is wrong with a JobSet that is to be created, or that was stored without admission.
///
/// Takes some microseconds for a JobSet of ordinary size, and longer only for message patterns, which it compiles: a
/// caller that asks again and again does well to remember the answer with `metadata.generation`.
pub fn validate(jobset: &JobSet, gates: Gates) -> Errors {
    let subject = Subject::new(jobset, gates);
    let spec = Path::root("spec");
    let mut errors = Errors::default();
    for rule in RULES {
        rule(&subject, &spec, &mut errors);
    }
    errors
}

/// All that is wrong with a change of a JobSet.
///
/// What was wrong before may stay so: rules are added over time, and an object that was admitted without them can still
/// be labelled, suspended and resumed. Nothing can become wrong, or wrong in another way.
pub fn validate_update(old: &JobSet, new: &JobSet, gates: Gates) -> Errors {
    let mut errors = Errors::default();
    if old.spec == new.spec {
        return errors;
    }
    let broken = validate(new, gates);
    if !broken.is_empty() {
        errors = broken.without(&validate(old, gates));
    }
    update::check(old, new, &Path::root("spec"), &mut errors);
    errors
}
