//! The coordinator Pod.

use super::subject::Subject;
use crate::field::{Errors, Path};
use crate::syntax;
use crate::{Coordinator, ReplicatedJob};

const EXISTS: &str = "must name an entry of spec.replicatedJobs";

/// Rejects a Pod that will not exist, and a network name that is too long for its label.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let Some(coordinator) = &subject.spec.coordinator else { return };
    let path = spec.child("coordinator");
    let Some((place, replicated_job)) = subject.replicated_job(&coordinator.replicated_job) else {
        errors.not_found(&path.child("replicatedJob"), &coordinator.replicated_job, EXISTS);
        return;
    };
    let replicas = replicated_job.replicas();
    if !(0..replicas).contains(&coordinator.job_index) {
        let required = format_args!("must be an index of the {replicas} replicas of spec.replicatedJobs[{place}]");
        errors.invalid(&path.child("jobIndex"), coordinator.job_index, required);
    }
    pod(coordinator, replicated_job, place, &path, errors);
    check_label(subject, spec, errors);
}

/// Only Pods of an Indexed Job have a stable name. Their indexes are less than its completions.
fn pod(coordinator: &Coordinator, target: &ReplicatedJob, place: usize, path: &Path<'_>, errors: &mut Errors) {
    let job = &target.template.spec;
    let path = path.child("podIndex");
    // Kubernetes defaults completions to 1 only if parallelism is absent too.
    let completions = job.completions.or(job.parallelism.is_none().then_some(1));
    match (job.completion_mode.as_deref(), completions) {
        (Some("Indexed"), Some(completions)) if (0..completions).contains(&coordinator.pod_index) => {}
        (Some("Indexed"), Some(completions)) => {
            let required = format_args!(
                "must be an index of the {completions} completions of spec.replicatedJobs[{place}].template.spec"
            );
            errors.invalid(&path, coordinator.pod_index, required);
        }
        _ => {
            let required = format_args!(
                "must be the index of a Pod, and only Indexed Jobs with completions have such: set completionMode and \
                 completions in spec.replicatedJobs[{place}].template.spec"
            );
            errors.invalid(&path, coordinator.pod_index, required);
        }
    }
}

/// Rejects a network name that is too long for the label. The API server would refuse every Job with it.
pub(super) fn check_label(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let Some(coordinator) = &subject.spec.coordinator else { return };
    let path = spec.child("coordinator");
    let subdomain = subject.spec.given_subdomain();
    let digits = |index: i32| index.checked_ilog10().map_or(1, |digits| digits as usize + 1);
    let Coordinator { replicated_job, job_index, pod_index } = coordinator;
    let pod = subject.name.len() + replicated_job.len() + digits(*job_index) + digits(*pod_index) + 3;
    let length = pod + 1 + subdomain.map_or(subject.name.len(), str::len);
    // Another rule rejects a malformed name.
    let formed = syntax::is_dns1123_label(replicated_job) && subdomain.is_none_or(syntax::is_dns1035_label);
    if length > syntax::LABEL_LENGTH && formed {
        let name = subject.name;
        let subdomain = subdomain.map_or_else(|| name.to_string(), str::to_owned);
        let required = format_args!(
            "its network name would be \"{name}-{replicated_job}-{job_index}-{pod_index}.{subdomain}\", {length} \
             characters of the 63 that fit into a label: shorten the name of the JobSet or of the replicatedJob, or set \
             a shorter spec.network.subdomain"
        );
        errors.invalid(&path, coordinator, required);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{admission_errors, jobset};

    #[test]
    fn coordinator_of_job_without_completion_mode_is_rejected() {
        let coordinator = ("/spec/coordinator", json!({ "replicatedJob": "workers" }));
        let mode = ("/spec/replicatedJobs/1/template/spec/completionMode", Value::Null);
        let expected = "spec.coordinator.podIndex: Invalid value: 0: must be the index of a Pod, and only Indexed Jobs";
        let errors = admission_errors(&jobset(&[mode, coordinator]));
        assert!(errors[0].contains(expected), "{errors:?}");
    }
}
