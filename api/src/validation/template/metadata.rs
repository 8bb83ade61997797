//! What the API server refuses in labels and annotations, by `ValidateLabels` and `ValidateAnnotations` of
//! `k8s.io/apimachinery` 0.36, and which labels of Pods the Job controller owns.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::field::{Errors, Path};
use crate::syntax;

/// Labels of Pods that say to which Job they belong. The first two have its name, the others its UID.
const OF_JOB: [&str; 4] =
    ["job-name", "batch.kubernetes.io/job-name", "controller-uid", "batch.kubernetes.io/controller-uid"];

type Map = BTreeMap<String, String>;

/// Whether Kubernetes generates this label for the Pods of a Job, and a selector for it.
pub(super) fn is_set_by_job_controller(key: &str) -> bool {
    OF_JOB.contains(&key)
}

/// Labels and annotations of a template. Those that `is_overwritten` do not matter.
pub(super) fn check(
    metadata: Option<&ObjectMeta>,
    path: &Path<'_>,
    is_overwritten: fn(&str) -> bool,
    errors: &mut Errors,
) {
    let Some(metadata) = metadata else { return };
    labels(metadata.labels.as_ref(), &path.child("labels"), is_overwritten, errors);
    let path = path.child("annotations");
    for key in metadata.annotations.iter().flat_map(BTreeMap::keys) {
        // Kubernetes does not look at the case of these keys.
        if !syntax::is_label_key(key) && !syntax::is_label_key(&key.to_lowercase()) {
            errors.invalid(&path.key(key), key, syntax::LABEL_KEY);
        }
    }
}

/// Keys and values of labels.
pub(super) fn labels(found: Option<&Map>, path: &Path<'_>, is_overwritten: fn(&str) -> bool, errors: &mut Errors) {
    for (key, value) in found.into_iter().flatten() {
        let path = path.key(key);
        if !syntax::is_label_key(key) {
            errors.invalid(&path, key, syntax::LABEL_KEY);
        } else if !syntax::is_label_value(value) && !is_overwritten(key) {
            errors.invalid(&path, value, syntax::LABEL_VALUE);
        }
    }
}

/// Labels of Pods that Kubernetes refuses, since they name another Job. `begin` is the beginning of the names of these Jobs.
pub(super) fn of_other_jobs(metadata: Option<&ObjectMeta>, begin: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(labels) = metadata.and_then(|metadata| metadata.labels.as_ref()) else { return };
    let path = path.child("labels");
    for (key, value) in OF_JOB.iter().filter_map(|key| labels.get_key_value(*key)) {
        let names_job = key.ends_with("job-name") && value.starts_with(begin);
        if !names_job {
            errors.forbidden(&path.key(key), "must not be set: Kubernetes sets it for each Job");
        }
    }
}
