//! JobSets that another controller manages, or that are gone.

use jobset_api::JobSet;

/// Why a change of the JobSet would have no effect: no controller of this cluster carries it out. `verb` says what to do elsewhere.
pub(super) fn refusal(jobset: &JobSet, verb: &str) -> Option<String> {
    (!jobset.is_managed_here())
        .then(|| format!("is managed by another controller (spec.managedBy): {verb} it where it runs"))
}

/// What to say of a JobSet that is gone before its change was carried out.
pub(super) const DELETED: &str = "was deleted meanwhile, and what was asked for with it";

/// Whether the JobSet is not the one with this UID: that was deleted, and another one has its name.
pub(super) fn is_another(uid: Option<&str>, jobset: &JobSet) -> bool {
    uid != jobset.metadata.uid.as_deref()
}
