//! The JobSet that a wait is for, by what the watches observe.

use jobset_api::{JobSet, JobSetStatus, dialect};
use kube::runtime::watcher::Event;

use super::decision::WaitBaseline;
use crate::mirror::{JobSetKey, Mirror, WatchEvent};
use crate::status::{self, JobSetTree};

#[derive(Debug)]
pub(super) struct Watched {
    key: JobSetKey,
    /// Of the JobSet that existed at first. Another one of the same name does not count.
    uid: Option<String>,
    /// What the JobSet was at first.
    pub(super) baseline: WaitBaseline,
    /// The JobSet as it had finished, if it has been deleted since.
    ended: Option<JobSetTree>,
    pub(super) mirror: Mirror,
}

impl Watched {
    pub(super) fn new(key: JobSetKey, jobset: &JobSet) -> Self {
        let tree = status::report(jobset, &[], &[], None);
        Self {
            key,
            uid: jobset.metadata.uid.clone(),
            baseline: WaitBaseline::of(&tree),
            // It may be deleted before the watches begin.
            ended: has_finished(jobset).then_some(tree),
            mirror: Mirror::default(),
        }
    }

    /// Whether enough has been observed to decide.
    pub(super) fn is_known(&self) -> bool {
        self.mirror.is_complete() || self.ended.is_some()
    }

    /// Takes in what a watch has observed. A JobSet that has finished may be deleted at once (`ttlSecondsAfterFinished`): it keeps
    /// its end.
    pub(super) fn take(&mut self, event: WatchEvent) {
        if let WatchEvent::JobSet(Event::Delete(jobset)) = &event
            && jobset.metadata.uid == self.uid
            && has_finished(jobset)
        {
            let mut jobset = jobset.clone();
            jobset.status.iter_mut().for_each(dialect::decode);
            self.ended = Some(status::report(&jobset, &[], &[], None));
        }
        self.mirror.apply(event);
    }

    /// The JobSet that existed at first, if it still exists or has finished.
    pub(super) fn tree(&self) -> Option<JobSetTree> {
        let observed = self.mirror.jobset(&self.key).filter(|observed| observed.jobset.metadata.uid == self.uid);
        observed.map(|observed| observed.tree()).or_else(|| self.ended.clone())
    }
}

fn has_finished(jobset: &JobSet) -> bool {
    jobset.status.as_ref().is_some_and(JobSetStatus::is_finished)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::wait::{Goal, WaitDecision};

    /// The JobSet `ml/train` of one life, which may have completed.
    fn jobset(uid: &str, has_completed: bool) -> JobSet {
        let completed = json!({"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "",
                               "lastTransitionTime": "2026-11-22T10:00:00Z"});
        let conditions: Vec<Value> = if has_completed { vec![completed] } else { Vec::new() };
        let object = json!({"metadata": {"name": "train", "namespace": "ml", "uid": uid}, "spec": {"replicatedJobs": []},
                            "status": {"conditions": conditions}});
        serde_json::from_value(object).unwrap()
    }

    fn decision(watched: &Watched) -> WaitDecision {
        WaitDecision::of(Goal::Finished, &watched.baseline, watched.tree().as_ref())
    }

    #[rstest]
    #[case::deleted(vec![Event::Apply(jobset("u1", true)), Event::Delete(jobset("u1", true))], true)]
    #[case::end_is_seen_with_its_deletion(vec![Event::Delete(jobset("u1", true))], true)]
    #[case::replaced(vec![Event::Delete(jobset("u1", true)), Event::Apply(jobset("u2", false))], true)]
    #[case::deleted_before_its_end(vec![Event::Delete(jobset("u1", false))], false)]
    #[case::end_of_successor(vec![Event::Delete(jobset("u1", false)), Event::Delete(jobset("u2", true))], false)]
    fn jobset_completed_and_deleted_at_once_counts_as_completed(
        #[case] burst: Vec<Event<JobSet>>,
        #[case] has_completed: bool,
    ) {
        let mut watched = Watched::new(JobSetKey::new("ml", "train"), &jobset("u1", false));
        watched.take(WatchEvent::JobSet(Event::Apply(jobset("u1", false))));
        assert_eq!(decision(&watched), WaitDecision::Wait);
        for event in burst {
            watched.take(WatchEvent::JobSet(event));
        }
        let expected = if has_completed {
            WaitDecision::Reached("has completed (AllJobsCompleted)".to_owned())
        } else {
            WaitDecision::Unreachable("was deleted".to_owned())
        };
        assert_eq!(decision(&watched), expected);
    }

    #[test]
    fn jobset_that_had_completed_at_first_needs_no_watch() {
        let watched = Watched::new(JobSetKey::new("ml", "train"), &jobset("u1", true));
        assert_eq!(decision(&watched), WaitDecision::Reached("has completed (AllJobsCompleted)".to_owned()));
    }
}
