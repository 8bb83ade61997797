//! The JobSet is not to run.

use jobset_api::labels;
use kube::ResourceExt as _;

use super::{Facts, Finding};
use crate::output::age;
use crate::status::queue;

pub(super) fn deleting(facts: &Facts) -> Vec<Finding> {
    let metadata = &facts.jobset.metadata;
    let Some(since) = &metadata.deletion_timestamp else { return Vec::new() };
    let what = format!("The JobSet was deleted {} ago, but still exists.", age(Some(since.0), facts.now));
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    if finalizers.is_empty() {
        return vec![Finding::new(
            "Deleting",
            what,
            "None needed: the JobSet goes with the last of its Jobs and Pods.",
        )];
    }
    let advice = "The controllers that set the finalizers have to remove them: check that they run.";
    vec![Finding::new("Deleting", what, advice).with(vec![format!("finalizers: {}", finalizers.join(", "))])]
}

pub(super) fn managed_elsewhere(facts: &Facts) -> Vec<Finding> {
    if facts.jobset.is_managed_here() {
        return Vec::new();
    }
    let manager = facts.jobset.spec.managed_by.as_deref().unwrap_or_default();
    let what = format!("Another controller reconciles the JobSet: spec.managedBy is {manager}.");
    let advice = match manager {
        labels::MULTIKUEUE => {
            let command = facts.kubectl("get workloads");
            format!("Kueue runs the JobSet in another cluster: see its Workload, `{command}`.")
        }
        _ => "Check that controller. To use this one, create the JobSet again without managedBy, which cannot be \
              changed."
            .to_owned(),
    };
    vec![Finding::new("ManagedElsewhere", what, advice)]
}

pub(super) fn suspended(facts: &Facts) -> Vec<Finding> {
    if !facts.jobset.spec.is_suspended() {
        return Vec::new();
    }
    let finding = match queue(&facts.jobset) {
        Some(queue) => Finding::new(
            "Suspended",
            format!("The JobSet is suspended (spec.suspend), and waits in Kueue's queue {queue}."),
            format!(
                "Kueue resumes the JobSet once there is quota. Its Workload says what is missing: `{}`.",
                facts.kubectl("describe workloads")
            ),
        ),
        None => Finding::new(
            "Suspended",
            "The JobSet is suspended: spec.suspend is true.",
            facts.kubectl(&format!("jobset resume {}", facts.jobset.name_any())),
        ),
    };
    vec![finding]
}

/// No replicatedJob has replicas.
pub(super) fn no_jobs(facts: &Facts) -> Vec<Finding> {
    let groups: Vec<&str> = facts.jobset.spec.replicated_jobs.iter().map(|group| group.name.as_str()).collect();
    let why = match groups.as_slice() {
        [] => "it has no replicatedJob".to_owned(),
        [group] => format!("replicatedJob {group} has 0 replicas"),
        groups => format!("replicatedJobs {} have 0 replicas", groups.join(", ")),
    };
    let advice = format!(
        "The JobSet will not complete. Set replicas of the last replicatedJob with `{}`. For the other replicatedJobs, \
         create another JobSet.",
        facts.kubectl(&format!("edit jobset {}", facts.jobset.name_any()))
    );
    vec![Finding::new("NoJobs", format!("The JobSet has no Jobs to run: {why}."), advice)]
}
