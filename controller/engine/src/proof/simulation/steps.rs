//! Steps: in lives with stalls, workers tell of steps, which rise now and then. In half of these lives, restarts without progress make the
//! JobSet fail.

use fastrand::Rng;
use jobset_api::{JobSetStatus, conditions, labels};
use jobset_store::pods::{JobPods, PodView};
use jobset_store::{JobView, Observed};

use super::cluster::{SimulatedCluster, pick};
use super::machine::SimulatedMachine;
use super::scenario::key;
use super::slots::is_current;
use crate::proof::{CheckResult, Property, ensure};

/// Steps of the simulation in which one of the workers is expected.
const RISES: u32 = 100;
/// Most failures in a row.
const MOST_IN_A_ROW: usize = 5;
/// The step with which workers begin.
const FIRST: i64 = 7;
/// The Pods that tell of steps: those of the first replicatedJob.
const TELLING: &str = "train-a-";

/// The first of them. In half of the lives, it alone tells of steps, as where one rank writes them.
const WRITER: &str = "train-a-0-0-";

/// How far the workers have come, and what is known of that.
#[derive(Debug)]
pub(super) struct Steps {
    rng: Rng,
    /// After how many restarts without progress the JobSet fails.
    limit: Option<i32>,
    one_tells: bool,
    /// The step that all workers are at.
    step: i64,
    /// The same when the present epoch began, and whether the controller knew it.
    at_lift: i64,
    was_known: bool,
    /// The highest one that any controller has kept.
    kept: Option<i64>,
    /// The epoch that a counted restart has ended, and whether workers have failed: certainly, and perhaps. Of some restarts, nobody can
    /// tell.
    ended: Option<(i32, [bool; 2])>,
    /// How many of such restarts in a row had no further step before them: certainly, and at most.
    in_a_row: [i32; 2],
}

/// What Pods had told the controller when it decided.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToldSteps {
    highest: Option<i64>,
    /// Whether a Pod that reported the next epoch had told of a step in the synced one.
    has_last: bool,
}

impl Steps {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(!seed.rotate_left(53));
        let limit = Some(rng.i32(1..=3)).filter(|_| rng.bool());
        let one_tells = rng.bool();
        let (step, at_lift, was_known, kept, ended) = (FIRST, FIRST, false, None, None);
        Self { rng, limit, one_tells, step, at_lift, was_known, kept, ended, in_a_row: [0; 2] }
    }

    /// The step that a Pod tells of, if it does. Those of other replicatedJobs would count something else.
    pub(super) fn of(&self, pod: &str) -> Option<i64> {
        pod.starts_with(if self.one_tells { WRITER } else { TELLING }).then_some(self.step)
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

    /// The workers come to the next step, and one of them says so. All have to run for that. None does in an epoch in which one has hung,
    /// as nobody tells how late others say that they stall.
    pub(super) fn step_steps(&mut self) {
        let synced = self.api.synced();
        if self.steps.rng.u32(..RISES) != 0 || !self.stalls.none_has_hung_in(synced) {
            return;
        }
        if let Some(uid) = self.rise() {
            let text = self.healthy(&self.machines[&uid].pod, synced);
            self.stalls.say_later(uid, synced, text);
        }
    }

    /// The workers come to the next step, if all run. Returns one of them.
    fn rise(&mut self) -> Option<String> {
        let synced = self.api.synced();
        let is_one = |machine: &SimulatedMachine| machine.has_agent && machine.pod.starts_with(TELLING);
        let wanted = self
            .api
            .jobset
            .spec
            .replicated_jobs
            .first()
            .map_or(0, |group| i64::from(group.replicas()).saturating_mul(group.template.spec.pods().into()));
        let members = self.machines_where(|machine| is_one(machine) && machine.runs_in() == Some(synced));
        let all_run = self.machines.values().filter(|it| is_one(it)).count() == members.len()
            && i64::try_from(members.len()).is_ok_and(|members| members >= wanted);
        let uid = pick(&mut self.steps.rng, members.iter()).filter(|_| all_run)?;
        self.steps.step += 1;
        Some(uid)
    }

    /// In lives with a limit, workers fail again and again, and now and then after a step that nobody tells of before.
    pub(super) fn fail_in_a_row(&mut self) -> CheckResult {
        if !self.stalls.is_on() || self.steps.limit.is_none() {
            return Ok(());
        }
        for _ in 0..self.steps.rng.usize(..=MOST_IN_A_ROW) {
            if self.steps.rng.u8(..4) == 0 {
                let _ = self.rise();
            }
            let synced = self.api.synced();
            let members = self.machines_where(|machine| machine.has_agent && machine.runs_in() == Some(synced));
            let Some(uid) = pick(&mut self.steps.rng, members.iter()) else { return Ok(()) };
            self.exit_worker(&uid, 1);
            self.calm()?;
        }
        Ok(())
    }

    /// What an agent that reports this epoch says of the worker before, if one has told of progress.
    pub(super) fn last_step(&self, uid: &str, epoch: i32) -> Option<String> {
        let machine = self.machines.get(uid)?;
        let last = machine.last_run.filter(|last| *last < epoch && self.stalls.told.contains(uid))?;
        (self.stalls.is_on() && machine.runs_in() != Some(epoch)).then(|| self.healthy(&machine.pod, last))
    }

    /// What Pods of the present Jobs have told the controller.
    pub(super) fn told_steps(&self) -> ToldSteps {
        let Some(seen) = Observed::of(&self.controller.engine.store, key()) else { return ToldSteps::default() };
        let (status, groups) = (seen.status(), &seen.jobset.spec.replicated_jobs);
        let is_one = |job: &&JobView| {
            let group = groups.iter().find(|group| group.name == job.replicated_job);
            let is_its = group.zip(job.index).is_some_and(|(group, index)| (0..group.replicas()).contains(&index));
            is_its && !job.deleting && is_current(&status, job)
        };
        let pods = || seen.jobs().map(|(_, job)| job).filter(is_one).filter_map(|job| seen.pods_of(job));
        let epoch = status.synced_epoch;
        let has_last = |pod: &PodView| {
            pod.epoch.number() == Some(epoch + 1) && pod.progress_in(epoch).is_some_and(|told| told.step.is_some())
        };
        let has_last = pods().flat_map(JobPods::all).any(has_last);
        ToldSteps { highest: pods().filter_map(JobPods::highest_step).max(), has_last }
    }

    /// The status that has just been written, decided when Pods had told of this.
    ///
    /// A restart is judged by how far the workers have truly come, when the next epoch begins.
    pub(super) fn check_progress(
        &mut self,
        before: &JobSetStatus,
        after: &JobSetStatus,
        told: ToldSteps,
    ) -> CheckResult {
        // Nothing is kept if the plan has panicked.
        if !self.stalls.is_on() || conditions::is_true(&after.conditions, conditions::INTERNAL_ERROR) {
            return Ok(());
        }
        let epoch = before.synced_epoch;
        let number = |status: &JobSetStatus| status.recent_restarts.last().map(|last| last.number);
        if after.group_restarts > before.group_restarts && number(after) != number(before) {
            let is_asked_for = Self::requested_restart(before, after).is_some() || Self::leaves_cordoned(before, after);
            let is_failure = !is_asked_for && self.truth.only_workers_failed_in(epoch);
            let earlier = self.steps.ended.filter(|(ended, _)| *ended == epoch).map_or([false; 2], |(_, by)| by);
            self.steps.ended = Some((epoch, [earlier[0] || is_failure, earlier[1] || !is_asked_for]));
        }
        self.steps.kept = self.steps.kept.max(told.highest);
        let end = conditions::terminal(&after.conditions).filter(|_| before.terminal_state.is_empty());
        let fails = end.is_some_and(|end| end.reason == conditions::NO_PROGRESS);
        let lifts = after.synced_epoch > epoch;
        if !fails && !lifts {
            return Ok(());
        }
        let Steps { step, at_lift, was_known, kept, ended, in_a_row, limit, .. } = &mut self.steps;
        let [certainly, perhaps] =
            ended.take().filter(|(ended, _)| *ended == epoch).map_or([0; 2], |(_, by)| by.map(i32::from));
        let rose = *step > *at_lift;
        // What is told late is progress of a later epoch.
        *in_a_row = match (rose, *was_known) {
            (true, _) => [0; 2],
            (false, true) => [in_a_row[0] + if told.has_last { certainly } else { 0 }, in_a_row[1] + perhaps],
            (false, false) => [0, in_a_row[1] + perhaps],
        };
        (*at_lift, *was_known) = (*step, *kept == Some(*step));
        let (in_a_row, limit) = (*in_a_row, limit.unwrap_or(i32::MAX));
        let what =
            || format!("step {step}, {kept:?} is known, {in_a_row:?} restarts in a row, limit {limit}, epoch {epoch}");
        ensure(!fails || !rose && in_a_row[1] >= limit, Property::NoProgress, || format!("it fails: {}", what()))?;
        ensure(!lifts || in_a_row[0] < limit, Property::NoProgress, || format!("it goes on: {}", what()))?;
        if lifts && rose {
            self.trace(|| format!("a further step after {told:?}"));
        }
        Ok(())
    }
}
