//! Steps: in lives with stalls, workers tell of steps, which rise now and then. In half of these lives, restarts without progress make the
//! JobSet fail.

use fastrand::Rng;
use jobset_api::{JobSetStatus, conditions, labels};
use jobset_store::Observed;
use jobset_store::pods::JobPods;

use super::cluster::{SimulatedCluster, pick};
use super::machine::SimulatedMachine;
use super::scenario::key;
use super::slots::is_current;
use crate::proof::{CheckResult, Property, ensure};

/// Steps of the simulation in which one of the workers is expected.
const RISES: u32 = 100;
/// The step with which workers begin.
const FIRST: i64 = 7;
/// The Pods that tell of steps: those of the first replicatedJob.
const TELLING: &str = "train-a-";

/// How far the workers have come, and what is known of that.
#[derive(Debug)]
pub(super) struct Steps {
    rng: Rng,
    /// After how many restarts without progress the JobSet fails.
    limit: Option<i32>,
    /// The step that all workers are at.
    step: i64,
    /// The highest one that any controller has kept.
    kept: Option<i64>,
    /// The same when the last restart began.
    at_restart: Option<i64>,
    /// How many restarts in a row have brought no further step since: certainly, and at most. Of some, nobody can tell whether a worker
    /// has failed.
    in_a_row: [i32; 2],
}

impl Steps {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(!seed.rotate_left(53));
        let limit = Some(rng.i32(1..=3)).filter(|_| rng.bool());
        Self { rng, limit, step: FIRST, kept: None, at_restart: None, in_a_row: [0; 2] }
    }

    /// The step that a Pod tells of, if it does. Those of other replicatedJobs would count something else.
    pub(super) fn of(&self, pod: &str) -> Option<i64> {
        pod.starts_with(TELLING).then_some(self.step)
    }
}

impl SimulatedCluster {
    /// The JobSet limits its restarts without progress in some lives.
    pub(super) fn limit_restarts_without_progress(&mut self) {
        let Some(limit) = self.steps.limit else { return };
        self.api.edit(|jobset| {
            let annotations = jobset.metadata.annotations.get_or_insert_default();
            annotations.insert(labels::MAX_RESTARTS_WITHOUT_PROGRESS.to_owned(), limit.to_string());
        });
    }

    /// The workers come to the next step, and one of them says so. None does in an epoch in which one has hung, as nobody tells how late
    /// others say that they stall.
    pub(super) fn step_steps(&mut self) {
        let synced = self.api.synced();
        if self.steps.rng.u32(..RISES) != 0 || !self.stalls.none_has_hung_in(synced) {
            return;
        }
        let tells = |machine: &SimulatedMachine| machine.has_agent && machine.pod.starts_with(TELLING);
        let members = self.machines_where(|machine| tells(machine) && machine.runs_in() == Some(synced));
        if let Some(uid) = pick(&mut self.steps.rng, members.iter()) {
            self.steps.step += 1;
            let text = self.healthy(&self.machines[&uid].pod, synced);
            self.stalls.say_later(uid, synced, text);
        }
    }

    /// An agent that reports the next epoch says how far the worker of the one before has come, if it knows.
    pub(super) fn tell_last_step(&mut self, uid: &str, pod: &str, epoch: i32) {
        let has_ended = self.machines.get(uid).is_some_and(|machine| machine.runs_in() != Some(epoch));
        let may_know = self.stalls.is_on() && has_ended && epoch > 1 && self.stalls.told.contains(uid);
        if may_know && self.steps.rng.bool() {
            let text = self.healthy(pod, epoch - 1);
            self.annotate_progress(pod, text);
        }
    }

    /// The highest step that Pods of the present Jobs have told the controller of.
    pub(super) fn told_step(&self) -> Option<i64> {
        let seen = Observed::of(&self.controller.engine.store, key())?;
        let (status, groups) = (seen.status(), &seen.jobset.spec.replicated_jobs);
        let current = seen.jobs().map(|(_, job)| job).filter(|job| {
            let group = groups.iter().find(|group| group.name == job.replicated_job);
            let is_its = group.zip(job.index).is_some_and(|(group, index)| (0..group.replicas()).contains(&index));
            is_its && !job.deleting && is_current(&status, job)
        });
        current.filter_map(|job| seen.pods_of(job)).filter_map(JobPods::highest_step).max()
    }

    /// The status that has just been written, decided when Pods had told of this step.
    pub(super) fn check_progress(
        &mut self,
        before: &JobSetStatus,
        after: &JobSetStatus,
        told: Option<i64>,
    ) -> CheckResult {
        // Nothing is kept if the plan has panicked.
        if !self.stalls.is_on() || conditions::is_true(&after.conditions, conditions::INTERNAL_ERROR) {
            return Ok(());
        }
        self.steps.kept = self.steps.kept.max(told);
        let end = conditions::terminal(&after.conditions).filter(|_| before.terminal_state.is_empty());
        let fails = end.is_some_and(|end| end.reason == conditions::NO_PROGRESS);
        let number = |status: &JobSetStatus| status.recent_restarts.last().map(|last| last.number);
        let restarts = after.group_restarts > before.group_restarts && number(after) != number(before);
        let is_asked_for = Self::requested_restart(before, after).is_some() || Self::leaves_cordoned(before, after);
        let is_failure = !is_asked_for && self.truth.only_workers_failed_in(before.synced_epoch);
        let Steps { kept, at_restart, in_a_row, limit, .. } = &mut self.steps;
        let rose = kept.is_some_and(|step| at_restart.is_none_or(|earlier| step > earlier));
        if (fails || restarts) && kept.is_some() {
            let more = [is_failure, !is_asked_for].map(i32::from);
            *in_a_row = if rose { [0; 2] } else { [in_a_row[0] + more[0], in_a_row[1] + more[1]] };
            *at_restart = *kept;
        }
        let (in_a_row, limit) = (*in_a_row, limit.unwrap_or(i32::MAX));
        let what = || {
            format!(
                "step {kept:?} after {told:?} was told, {in_a_row:?} restarts in a row, limit {limit}, epoch {}",
                before.synced_epoch
            )
        };
        ensure(!fails || !rose && in_a_row[1] >= limit, Property::NoProgress, || format!("it fails: {}", what()))?;
        ensure(!restarts || !is_failure || in_a_row[0] < limit, Property::NoProgress, || {
            format!("it goes on: {}", what())
        })?;
        if restarts && rose {
            self.trace(|| format!("a further step after {told:?}"));
        }
        Ok(())
    }
}
