//! What of a JobSet cannot change once it is created. The CRD itself holds most such fields still; what is left are the
//! replicatedJobs, whose Jobs exist already: a changed template or number would be true of none of them.

use jobset_api::JobSetSpec;

use crate::field::{Errors, Path};

const REPLICATED_JOBS: &str = "must stay as it was created: create another JobSet instead";
const MANAGED_BY: &str = "must stay as it was created: two controllers would work on one JobSet";

/// Compares the specification with the one that is stored.
pub fn validate(old: &JobSetSpec, new: &JobSetSpec, path: &Path<'_>, errors: &mut Errors) {
    if old.managed_by != new.managed_by {
        errors.invalid(&path.child("managedBy"), &new.managed_by, MANAGED_BY);
    }
    let replicated_jobs = path.child("replicatedJobs");
    if old.replicated_jobs.len() != new.replicated_jobs.len() {
        let names: Vec<_> = new.replicated_jobs.iter().map(|group| &group.name).collect();
        errors.invalid(&replicated_jobs, names, REPLICATED_JOBS);
        return;
    }
    for (index, (old, new)) in old.replicated_jobs.iter().zip(&new.replicated_jobs).enumerate() {
        let path = replicated_jobs.index(index);
        if old.replicas() != new.replicas() {
            errors.invalid(&path.child("replicas"), new.replicas(), REPLICATED_JOBS);
        } else if old.template != new.template {
            // The template as a whole: naming it is clearer than printing it.
            errors.invalid(&path.child("template"), &new.name, REPLICATED_JOBS);
        } else if old != new {
            errors.invalid(&path, &new.name, REPLICATED_JOBS);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::nothing("", json!(null), "")]
    #[case::suspend("/suspend", json!(true), "")]
    #[case::manager("/managedBy", json!("example.com/x"), "spec.managedBy")]
    #[case::fewer_jobs("/replicatedJobs/0/replicas", json!(1), "spec.replicatedJobs[0].replicas")]
    #[case::smaller_jobs("/replicatedJobs/0/template/spec/parallelism", json!(1), "spec.replicatedJobs[0].template")]
    #[case::other_group("/replicatedJobs/0/groupName", json!("x"), "spec.replicatedJobs[0]")]
    #[case::none_left("/replicatedJobs", json!([]), "spec.replicatedJobs")]
    fn a_change_is_refused_with_its_path(#[case] pointer: &str, #[case] value: Value, #[case] field: &str) {
        let old = json!({
            "suspend": false, "managedBy": "jobset.sigs.k8s.io/jobset-controller",
            "replicatedJobs": [{"name": "w", "groupName": "g", "replicas": 2, "template": {"spec": {"parallelism": 2}}}],
        });
        let mut new = old.clone();
        if !pointer.is_empty() {
            *new.pointer_mut(pointer).unwrap() = value;
        }
        let mut errors = Errors::default();
        let read = |spec: Value| serde_json::from_value(spec).unwrap();
        validate(&read(old), &read(new), &Path::root("spec"), &mut errors);
        let fields: Vec<String> = errors.causes().into_iter().map(|cause| cause.field).collect();
        assert_eq!(fields.join(" "), field);
    }
}
