//! What the rules read of a Job.

use std::collections::BTreeMap;

use jobset_api::labels;
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::Versioned;

/// A Job, reduced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobView {
    /// UID of the Job.
    pub uid: String,
    /// resourceVersion.
    pub version: u64,
    /// The object that controls it: its JobSet, if all is well.
    pub controller: Option<Controller>,
    /// replicatedJob that its label names.
    pub replicated_job: String,
    /// Its index in that replicatedJob; `None` where the label is absent or not a number.
    pub index: Option<i32>,
    /// `status.restarts` of the JobSet when it was created; `None` where the label is absent or not a number.
    pub attempt: Option<i32>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it is suspended.
    pub suspended: bool,
    /// How it ended, if it did.
    pub finished: Option<Finished>,
    /// Pods pending or running.
    pub active: i32,
    /// Pods ready.
    pub ready: i32,
    /// Pods succeeded.
    pub succeeded: i32,
    /// Number of Pods that it runs at once.
    pub pods: i32,
    /// Completion indexes that have succeeded, as ranges, both ends included.
    pub completed: Vec<(i32, i32)>,
}

/// How a Job ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Finished {
    /// Complete.
    Completed,
    /// Failed, with reason and message of the condition, and its time.
    Failed {
        /// Reason that the Job controller gives.
        reason: String,
        /// Message that the Job controller gives.
        message: String,
        /// When the condition became true.
        at: Timestamp,
    },
}

impl JobView {
    /// Reduces a Job.
    pub fn of(job: &Job) -> Self {
        let spec = job.spec.as_ref();
        let status = job.status.as_ref();
        let parallelism = spec.and_then(|spec| spec.parallelism).unwrap_or(1);
        let completions = spec.and_then(|spec| spec.completions).unwrap_or(parallelism);
        Self {
            uid: job.uid().unwrap_or_default(),
            version: super::version(job),
            controller: controller(job),
            replicated_job: job.labels().get(labels::REPLICATED_JOB_NAME).cloned().unwrap_or_default(),
            index: number(job.labels(), labels::JOB_INDEX),
            attempt: number(job.labels(), labels::RESTART_ATTEMPT),
            deleting: job.metadata.deletion_timestamp.is_some(),
            suspended: spec.and_then(|spec| spec.suspend).unwrap_or(false),
            finished: finished(status.and_then(|status| status.conditions.as_deref()).unwrap_or_default()),
            active: status.and_then(|status| status.active).unwrap_or(0),
            ready: status.and_then(|status| status.ready).unwrap_or(0),
            succeeded: status.and_then(|status| status.succeeded).unwrap_or(0),
            pods: parallelism.min(completions),
            completed: ranges(status.and_then(|status| status.completed_indexes.as_deref()).unwrap_or_default()),
        }
    }

    /// Number of completion indexes that have succeeded, of those that the Job runs.
    pub fn completed_count(&self) -> i32 {
        let of_range = |(first, last): &(i32, i32)| last.min(&(self.pods - 1)) - first.max(&0) + 1;
        self.completed.iter().map(|range| of_range(range).max(0)).fold(0, i32::saturating_add)
    }

    /// Whether the completion index has succeeded.
    pub fn has_completed(&self, index: i32) -> bool {
        self.completed.iter().any(|(first, last)| (*first..=*last).contains(&index))
    }
}

impl Versioned for JobView {
    fn version(&self) -> u64 {
        self.version
    }
}

/// The object that controls another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Controller {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Controller {
    /// Whether it is, or was, a JobSet of this name.
    pub fn is_jobset(&self, name: &str) -> bool {
        self.kind == "JobSet" && self.name == name
    }
}

/// The object that controls this one.
pub(crate) fn controller(object: &impl ResourceExt) -> Option<Controller> {
    let controller = object.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    Some(Controller { kind: controller.kind.clone(), name: controller.name.clone(), uid: controller.uid.clone() })
}

/// A label or annotation that is a number.
pub(super) fn number(values: &BTreeMap<String, String>, key: &str) -> Option<i32> {
    values.get(key)?.parse().ok()
}

fn finished(conditions: &[JobCondition]) -> Option<Finished> {
    conditions.iter().filter(|condition| condition.status == "True").find_map(|condition| {
        match condition.type_.as_str() {
            "Complete" => Some(Finished::Completed),
            "Failed" => Some(Finished::Failed {
                reason: condition.reason.clone().unwrap_or_default(),
                message: condition.message.clone().unwrap_or_default(),
                at: condition.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            }),
            _ => None,
        }
    })
}

/// Parses `completedIndexes`, as in `0,3-5`. What is not of that form is left out.
fn ranges(text: &str) -> Vec<(i32, i32)> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    };
    text.split(',').filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_indexes_are_read_as_ranges() {
        let job = JobView { completed: ranges("0,3-5,7"), pods: 5, ..JobView::default() };
        assert_eq!(job.completed_count(), 3, "0, 3 and 4; the others are outside of the Job's size");
        let completed: Vec<i32> = (0..9).filter(|index| job.has_completed(*index)).collect();
        assert_eq!(completed, [0, 3, 4, 5, 7]);
        assert_eq!(ranges(""), []);
        assert_eq!(ranges("x,2"), [(2, 2)]);
    }
}
