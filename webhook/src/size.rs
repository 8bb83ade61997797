//! How large a JobSet may be. An update is rejected only if it makes the JobSet larger, because a lower limit must not lock the
//! JobSets that exist.

use jobset_api::validation::{Errors, Path};
use jobset_api::weight::heaviest_part;
use jobset_api::{JobSet, JobSetLimits, JobSetSpec};

use crate::wire::SpecWeight;

/// What an update may add to a specification that is too heavy, in bytes: fields as `suspend`. The controller does not read such a
/// JobSet, whatever it grows to.
const FIELDS: usize = 512;

/// Rejects what exceeds the limits: one object could fill etcd, or the memory of the controller.
pub(crate) fn check(
    old: Option<&JobSet>,
    new: &JobSet,
    weight: SpecWeight,
    limits: &JobSetLimits,
    errors: &mut Errors,
) {
    let old = old.map(|old| &old.spec);
    let new = &new.spec;
    let path = Path::root("spec");
    let path = path.child("replicatedJobs");
    if let Some(jobs) = limits.excess_jobs(new).filter(|jobs| old.is_none_or(|old| *jobs > number_of_jobs(old))) {
        let required = format_args!(
            "the replicas of all replicatedJobs together must not exceed {}, the limit of this cluster \
             (--max-jobs-per-jobset of the webhook)",
            limits.jobs
        );
        errors.invalid(&path, jobs, required);
    }
    if let Some(pods) = limits.excess_pods(new).filter(|pods| old.is_none_or(|old| *pods > old.expected_pods())) {
        let required = format_args!(
            "the Pods of all replicatedJobs together, replicas times the smaller of parallelism and completions, must not \
             exceed {}, the limit of this cluster (--max-pods-per-jobset of webhook and controller)",
            limits.pods
        );
        let jobs = new.replicated_jobs.iter().enumerate();
        let largest = jobs.max_by_key(|(_, job)| job.expected_pods()).map_or(0, |(index, _)| index);
        errors.invalid(&path.index(largest), pods, required);
    }
    if weight.new > limits.most_memory() && (old.is_none() || weight.new > weight.old.saturating_add(FIELDS)) {
        let part = heaviest_part(new);
        let required = format_args!(
            "the specification would take {} KiB of the controller's memory, and must not take more than {} KiB, the limit of \
             this cluster (--max-memory-per-jobset of webhook and controller). {} KiB of it are for this list: shorten it, or \
             split the JobSet",
            kib(weight.new),
            kib(limits.memory),
            kib(part.weight)
        );
        errors.too_many(&Path::root(&part.field), part.entries, required);
    }
}

fn number_of_jobs(spec: &JobSetSpec) -> i64 {
    spec.replicated_jobs.iter().map(|job| i64::from(job.replicas().max(0))).sum()
}

fn kib(bytes: usize) -> usize {
    bytes.div_ceil(1 << 10)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const LIMITS: JobSetLimits = JobSetLimits { jobs: 5, pods: 100, memory: 64 << 10 };
    const MAX: i64 = i32::MAX as i64;

    fn jobset(replicas: &[i32], parallelism: i32) -> JobSet {
        let group = |(index, replicas): (usize, &i32)| json!({ "name": format!("w{index}"), "replicas": replicas, "template": { "spec": { "parallelism": parallelism } } });
        let groups: Vec<_> = replicas.iter().enumerate().map(group).collect();
        read(&json!({ "replicatedJobs": groups }))
    }

    fn read(spec: &Value) -> JobSet {
        serde_json::from_value(json!({ "metadata": { "name": "train" }, "spec": spec })).unwrap()
    }

    fn errors(old: Option<&JobSet>, new: &JobSet, limits: &JobSetLimits) -> Vec<String> {
        let mut errors = Errors::default();
        check(old, new, SpecWeight::default(), limits, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[rstest]
    #[case::created_at_limit(None, vec![3, 2], None)]
    #[case::created_above(None, vec![3, 3], Some(6))]
    #[case::created_with_sum_above_32_bits(None, vec![1_500_000_000; 2], Some(3_000_000_000))]
    #[case::negative(None, vec![i32::MIN, 5], None)]
    #[case::grown_to_limit(Some(1), vec![5], None)]
    #[case::grown_above(Some(5), vec![6], Some(6))]
    #[case::above_and_unchanged(Some(7), vec![7], None)]
    #[case::above_and_shrunk(Some(7), vec![6], None)]
    #[case::above_and_grown(Some(7), vec![8], Some(8))]
    fn number_of_jobs_above_limit_is_rejected_if_it_grows(
        #[case] old: Option<i32>,
        #[case] new: Vec<i32>,
        #[case] rejected: Option<i64>,
    ) {
        let (old, new) = (old.map(|old| jobset(&[old], 0)), jobset(&new, 0));
        let expected = rejected.map(|jobs| {
            format!(
                "spec.replicatedJobs: Invalid value: {jobs}: the replicas of all replicatedJobs together must not exceed 5, the \
                 limit of this cluster (--max-jobs-per-jobset of the webhook)"
            )
        });
        assert_eq!(errors(old.as_ref(), &new, &LIMITS), Vec::from_iter(expected));
        assert_eq!(errors(old.as_ref(), &new, &JobSetLimits::NONE), Vec::<String>::new());
    }

    #[rstest]
    #[case::created_at_limit(None, (vec![2, 2], 25), None)]
    #[case::created_above(None, (vec![1, 3], 26), Some((1, 104)))]
    #[case::created_without_pods(None, (vec![5], 0), None)]
    #[case::created_with_negative_numbers(None, (vec![5], i32::MIN), None)]
    #[case::created_largest(None, (vec![1; 4], i32::MAX), Some((3, 4 * MAX)))]
    #[case::grown_by_replicas(Some((vec![4], 25)), (vec![5], 25), Some((0, 125)))]
    #[case::grown_by_parallelism(Some((vec![4], 25)), (vec![4], 26), Some((0, 104)))]
    #[case::grown_to_limit(Some((vec![1], 1)), (vec![4], 25), None)]
    #[case::above_and_unchanged(Some((vec![5], i32::MAX)), (vec![5], i32::MAX), None)]
    #[case::above_and_the_same_in_sum(Some((vec![1, 4], 30)), (vec![4, 1], 30), None)]
    #[case::above_and_shrunk(Some((vec![5], 100)), (vec![5], 99), None)]
    #[case::above_and_grown(Some((vec![5], 100)), (vec![5], 101), Some((0, 505)))]
    fn number_of_pods_above_limit_is_rejected_if_it_grows(
        #[case] old: Option<(Vec<i32>, i32)>,
        #[case] new: (Vec<i32>, i32),
        #[case] rejected: Option<(usize, i64)>,
    ) {
        let (old, new) = (old.map(|(replicas, pods)| jobset(&replicas, pods)), jobset(&new.0, new.1));
        let expected = rejected.map(|(index, pods)| {
            format!(
                "spec.replicatedJobs[{index}]: Invalid value: {pods}: the Pods of all replicatedJobs together, replicas times the \
                 smaller of parallelism and completions, must not exceed 100, the limit of this cluster \
                 (--max-pods-per-jobset of webhook and controller)"
            )
        });
        assert_eq!(errors(old.as_ref(), &new, &LIMITS), Vec::from_iter(expected));
        assert_eq!(errors(old.as_ref(), &new, &JobSetLimits::NONE), Vec::<String>::new());
    }

    #[rstest]
    #[case::at_limit(false, SpecWeight { new: 64 << 10, old: 0 }, false)]
    #[case::created(false, SpecWeight { new: (64 << 10) + 1, old: 0 }, true)]
    #[case::grown(true, SpecWeight { new: 80 << 10, old: 79 << 10 }, true)]
    #[case::unchanged(true, SpecWeight { new: 80 << 10, old: 80 << 10 }, false)]
    #[case::suspended(true, SpecWeight { new: (80 << 10) + 512, old: 80 << 10 }, false)]
    #[case::grown_by_more_than_fields(true, SpecWeight { new: (80 << 10) + 513, old: 80 << 10 }, true)]
    #[case::lighter(true, SpecWeight { new: 80 << 10, old: 90 << 10 }, false)]
    fn weight_above_limit_is_rejected_if_it_grows(
        #[case] is_update: bool,
        #[case] weight: SpecWeight,
        #[case] is_rejected: bool,
    ) {
        let volumes = vec![json!({ "name": "v" }); 20];
        let pod = json!({ "spec": { "containers": [], "volumes": volumes } });
        let jobset = read(&json!({ "replicatedJobs": [{ "name": "w", "template": { "spec": { "template": pod } } }] }));
        let mut errors = Errors::default();
        check(Some(&jobset).filter(|_| is_update), &jobset, weight, &LIMITS, &mut errors);
        let kib = weight.new.div_ceil(1024);
        let expected = is_rejected.then(|| {
            format!(
                "spec.replicatedJobs[0].template.spec.template.spec.volumes: Too many: 20: the specification would take {kib} KiB \
                 of the controller's memory, and must not take more than 64 KiB, the limit of this cluster \
                 (--max-memory-per-jobset of webhook and controller). 65 KiB of it are for this list: shorten it, or split the \
                 JobSet"
            )
        });
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), Vec::from_iter(expected));
        let mut errors = Errors::default();
        check(None, &jobset, weight, &JobSetLimits::NONE, &mut errors);
        assert!(errors.is_empty());
    }
}
