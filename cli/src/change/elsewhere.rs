//! JobSets that another controller manages, or that are gone.

use jobset_api::JobSet;

/// Why a change of the JobSet would have no effect: no controller of this cluster carries it out. `verb` says what to do elsewhere.
pub(super) fn refusal(jobset: &JobSet, verb: &str) -> Option<String> {
    (!jobset.is_managed_here())
        .then(|| format!("is managed by another controller (spec.managedBy): {verb} it where it runs"))
}

/// That the JobSet was deleted, if another one has its name now: nobody carries the change out.
pub(super) fn replaced(changed: Option<&str>, now: &JobSet) -> Option<String> {
    let text = "was deleted meanwhile, and what was asked for with it: another JobSet has its name now";
    (changed != now.metadata.uid.as_deref()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn jobset_of_same_name_with_another_uid_is_another_one() {
        let now: JobSet =
            serde_json::from_value(json!({"metadata": {"name": "train", "uid": "b"}, "spec": {"replicatedJobs": []}}))
                .unwrap();
        assert_eq!(replaced(Some("b"), &now), None);
        assert!(replaced(Some("a"), &now).is_some_and(|text| text.contains("was deleted")));
    }
}
