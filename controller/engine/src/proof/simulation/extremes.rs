//! Sizes at the ends of their integers. A cluster holds a part of what they ask for: the API server refuses Jobs beyond a
//! quota, and the Job controller has not created more than a few Pods of each Job yet. What the controller plans is as large
//! as what exists.

use fastrand::Rng;
use jobset_api::event;
use jobset_rules::{Note, Plan};
use jobset_store::Observed;
use serde_json::{Value, json};

use super::api::JobObject;
use super::cluster::SimulatedCluster;
use super::scenario::key;
use crate::{Failure, RequestError};

/// Most Pods of a Job that there are.
pub(super) const MOST_PODS: i32 = 4;
/// Most Jobs of a JobSet that there are.
pub(super) const MOST_JOBS: i32 = 10;
/// Lives in which one has such sizes.
const LIVES: u8 = 12;
/// Steps in which one resize is expected.
const STEPS: u32 = 40;
/// The sizes. The small ones bring the JobSet back.
const SIZES: [i32; 6] = [0, 1, 2, 3, i32::MAX, i32::MAX];

/// Most requests of a plan beside those for children that exist.
const REQUESTS: usize = 200 + 10;
/// Most notes of a plan: one for each reason.
const NOTES: usize = 50;
/// Most bytes of a status beside those for children that exist: the counters of single Jobs are at most 1,024.
const BYTES: usize = 32 * 1024;
/// Most bytes of a status for one child: its index among the members, and its restarts.
const BYTES_OF_CHILD: usize = 64;

/// Gives some lives sizes at the ends of their integers. Returns whether this is one.
pub(super) fn draw(rng: &mut Rng, spec: &mut Value) -> bool {
    if rng.u8(..LIVES) != 0 {
        return false;
    }
    for group in spec["replicatedJobs"].as_array_mut().into_iter().flatten() {
        if rng.u8(..3) == 0 {
            group["replicas"] = json!(pick_size(rng));
        }
        if rng.u8(..3) == 0 {
            let (job, pods) = (&mut group["template"]["spec"], json!(pick_size(rng)));
            (job["parallelism"], job["completions"]) = (pods.clone(), pods);
        }
    }
    true
}

/// The places below a size that are looked at: those that can be filled, and one that cannot.
pub(super) fn places(size: i32, most: i32) -> std::ops::Range<i32> {
    0..size.min(most + 1)
}

/// How a plan is larger than the children that exist allow, if it is.
pub(super) fn oversize(observed: &Observed<'_>, plan: &Plan, has_extremes: bool) -> Option<String> {
    let children = observed.jobs().count() + observed.pods().on_nodes(|_| true).len();
    let (requests, notes) = (plan.actions.len(), plan.notes.len());
    if requests > children + REQUESTS || notes > NOTES {
        return Some(format!("{requests} requests and {notes} notes of a JobSet with {children} children"));
    }
    // To write each status of each life takes too long.
    let bytes = if has_extremes { serde_json::to_vec(&plan.status).map_or(0, |status| status.len()) } else { 0 };
    let is_large = bytes > children * BYTES_OF_CHILD + BYTES;
    is_large.then(|| format!("a status of {bytes} bytes of a JobSet with {children} children"))
}

impl SimulatedCluster {
    /// What happens in a step because sizes are at the ends of their integers.
    pub(super) fn step_sizes(&mut self) {
        if self.scenario.has_extremes && self.extra.u32(..STEPS) == 0 && self.api.status().terminal_state.is_empty() {
            let all = self.extra.u8(..4) == 0;
            let groups = self.api.jobset.spec.replicated_jobs.len();
            let one = self.extra.usize(..groups);
            for group in (0..groups).filter(|group| all || *group == one) {
                let (of_jobs, size) = (self.extra.bool(), pick_size(&mut self.extra));
                self.set_size(group, of_jobs, size);
            }
        }
    }

    /// Nobody asks for more than there can be, from now on.
    pub(super) fn end_extremes(&mut self) {
        if !self.scenario.has_extremes || !self.api.status().terminal_state.is_empty() {
            return;
        }
        let groups = &self.api.jobset.spec.replicated_jobs;
        let sizes: Vec<_> = groups.iter().map(|group| (group.replicas(), group.template.spec.pods())).collect();
        for (group, (jobs, pods)) in sizes.into_iter().enumerate() {
            if !(1..=3).contains(&jobs) {
                self.set_size(group, true, 1);
            }
            if !(1..=3).contains(&pods) {
                self.set_size(group, false, 2);
            }
        }
    }

    /// Whether the specification is invalid, as the controller has observed.
    pub(super) fn is_left_alone(&self) -> bool {
        Observed::of(&self.controller.engine.store, key()).is_some_and(|observed| observed.invalid().is_some())
    }

    /// Whether the specification asks for more than there can be.
    pub(super) fn exceeds_cluster(&self) -> bool {
        let spec = &self.api.jobset.spec;
        spec.replicated_jobs.iter().any(|group| group.template.spec.pods() > MOST_PODS)
            || spec.global_replicas() > i64::from(MOST_JOBS)
    }

    /// Why the API server refuses another Job, if it does.
    pub(super) fn quota_error(&self, name: &str) -> Option<RequestError> {
        let is_new = |jobs: &std::collections::BTreeMap<String, JobObject>| !jobs.contains_key(name);
        let is_full = i32::try_from(self.api.jobs.len()).is_ok_and(|jobs| jobs >= MOST_JOBS);
        (is_full && is_new(&self.api.jobs)).then(|| {
            let note = Note::warning(event::JOB_CREATION_FAILED, "exceeded quota: jobs".to_owned());
            RequestError { failure: Failure::Refused, note: Some(note) }
        })
    }
}

fn pick_size(rng: &mut Rng) -> i32 {
    SIZES[rng.usize(..SIZES.len())]
}
