//! The slot of a Pod by its name, whether the Pod exists or not.

use crate::reconciliation::{Current, Reconciliation};

/// Longest begin of a generated name, in bytes: five random ones follow it (`k8s.io/apiserver/pkg/storage/names`).
const LONGEST_BEGIN: usize = 58;

/// The Job and the completion index of a Pod. The name of a Pod that is gone may be that of several Jobs, which is that of none.
pub(super) fn slot_of<'a>(reconciliation: &Reconciliation<'a>, name: &str) -> Option<(Current<'a>, i32)> {
    let mut jobs = reconciliation.current.iter();
    if let Some((job, pod)) = reconciliation.observed.pods().named(name) {
        return Some((*jobs.find(|it| it.job.uid == job)?, pod.index?));
    }
    let (begin, index) = split(name)?;
    let mut jobs = jobs.filter(|current| begin_of(current.name, index) == begin);
    let current = jobs.next()?;
    jobs.next().is_none().then_some((*current, index))
}

/// What of the name of its Job the name of a Pod begins with, and its completion index.
fn split(name: &str) -> Option<(&str, i32)> {
    let (slot, _) = name.rsplit_once('-')?;
    let (begin, index) = slot.rsplit_once('-')?;
    Some((begin, index.parse().ok()?))
}

/// What of the name of a Job the names of its Pods begin with: the Job controller cuts it (`podGenerateNameWithIndex`).
fn begin_of(job: &str, index: i32) -> &str {
    let longest = LONGEST_BEGIN.saturating_sub(format!("-{index}-").len());
    job.get(..longest).unwrap_or(job)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::short("train-w-0", 3, "train-w-0-3-abcde")]
    #[case::longest_that_is_not_cut(&"j".repeat(55), 3, &format!("{}-3-abcde", "j".repeat(55)))]
    #[case::one_longer(&"j".repeat(56), 3, &format!("{}-3-abcde", "j".repeat(55)))]
    #[case::longer_index(&"j".repeat(56), 12, &format!("{}-12-abcde", "j".repeat(54)))]
    fn pod_name_begins_with_cut_job_name(#[case] job: &str, #[case] index: i32, #[case] pod: &str) {
        assert_eq!(split(pod), Some((begin_of(job, index), index)));
    }

    #[rstest]
    #[case("train")]
    #[case("train-w")]
    #[case("train-w-x")]
    fn other_names_are_of_no_pod(#[case] name: &str) {
        assert_eq!(split(name), None);
    }
}
