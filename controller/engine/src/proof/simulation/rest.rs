//! The JobSet at rest: nothing is left to do, the controller has nothing to say, and its engine holds what exists.

use std::time::{Duration, Instant};

use jobset_api::{FailurePolicyAction, JobSetStatus, conditions, event};
use jobset_rules::{Action, Note};
use jobset_store::Observed;
use jobset_store::pods::JobPods;
use kube::ResourceExt;

use super::api::JobObject;
use super::cluster::SimulatedCluster;
use super::controller::brief;
use super::extremes::{MOST_PODS, places};
use super::jobs::finished;
use super::machine::{SimulatedMachine, has_ended, is_going};
use super::requests::name;
use super::scenario::key;
use super::slots::SpecifiedSlot;
use super::watches::KINDS;
use crate::proof::{CheckResult, Property, Violation, ensure};
use crate::{Engine, Request};

/// Reconciliations in which the controller has to come to rest while nothing else moves.
const RECONCILIATIONS_TO_REST: u64 = 100;

impl SimulatedCluster {
    /// Why the JobSet is not as it was specified, if so.
    pub(super) fn settled(&self) -> Result<(), String> {
        if self.owes_annotations() {
            return Err("an annotation is due".to_owned());
        }
        if self.any_is_kept() {
            return Err("Pods that leave are still there".to_owned());
        }
        let status = self.api.status();
        if !status.terminal_state.is_empty() {
            let left = self.api.jobs.values().find(|it| finished(&it.job).is_none());
            return left.map_or(Ok(()), |it| Err(format!("it has ended, and {} is left", it.job.name_any())));
        }
        if self.is_left_alone() {
            return Ok(());
        }
        if self.owes_request() {
            return Err("a request to restart is neither carried out nor noted".to_owned());
        }
        if self.api.jobset.spec.is_suspended() {
            let runs = self.machines.values().find(|machine| machine.runs());
            return runs.map_or(Ok(()), |machine| Err(format!("it is suspended, and {} runs", machine.pod)));
        }
        if self.deadline_has_passed(&status) {
            return Err("its deadline has passed, and it goes on".to_owned());
        }
        if self.exceeds_cluster() {
            return Ok(());
        }
        let members = self.recorded(&status);
        let is_open_member = |slot: SpecifiedSlot<'_>| members.contains(&slot.place) && !slot.is_completed();
        let can_run_without_newcomers =
            self.scenario.in_place() && status.synced_epoch > 0 && self.open_slots(&status).any(is_open_member);
        if self.any_waits_for_node() && !can_run_without_newcomers {
            return Ok(());
        }
        // A group without Pods restarts when it has some.
        let has_pods = self.api.jobset.spec.expected_pods() > 0;
        if has_pods && conditions::is_true(&status.conditions, conditions::RESTARTING) {
            return Err("it is still restarting".to_owned());
        }
        if self.owes_restart_of_stall() {
            return Err("the group stalls, and nothing follows".to_owned());
        }
        for (name, job) in self.wanted_jobs(&status) {
            let Some(found) = job else { return Err(format!("{name} is missing")) };
            match finished(&found.job) {
                Some(true) => {}
                Some(false) if self.is_left_failed(found) => {}
                Some(false) => return Err(format!("{name} has failed, and nothing follows")),
                None => self.all_run(&name, found, status.synced_epoch)?,
            }
        }
        Ok(())
    }

    pub(super) fn any_waits_for_node(&self) -> bool {
        self.machines.values().any(|machine| machine.waits_for_node)
    }

    pub(super) fn is_left_failed(&self, found: &JobObject) -> bool {
        let uid = found.job.uid();
        let failed = self.truth.failed_jobs.iter().find(|it| Some(&it.view.uid) == uid.as_ref());
        let action = failed.and_then(|it| self.scenario.action(&it.view.replicated_job, &it.reason));
        action == Some(FailurePolicyAction::FailJob)
    }

    /// Whether all wanted workers run, or have done their work.
    pub(super) fn all_wanted_run(&self, status: &JobSetStatus) -> bool {
        self.wanted_jobs(status).all(|(name, job)| {
            job.is_some_and(|job| finished(&job.job).is_some() || self.all_run(&name, job, status.synced_epoch).is_ok())
        })
    }

    /// Each slot that is not done has one Pod, whose worker runs in the synced epoch.
    fn all_run(&self, name: &str, found: &JobObject, synced: i32) -> Result<(), String> {
        let uid = found.job.uid().unwrap_or_default();
        let pods = found.job.spec.as_ref().and_then(|spec| spec.completions).unwrap_or(1);
        for index in places(pods, MOST_PODS).filter(|index| !found.completed.contains(index)) {
            // A newcomer waits until all of them have a node.
            if self.any_waits_for_node() && !self.is_recorded(name, index) {
                continue;
            }
            let of_slot = self.machines.values().filter(|it| it.job_uid == uid && it.index == index && it.runs());
            let epochs: Vec<Option<i32>> = of_slot.map(SimulatedMachine::runs_in).collect();
            let wanted = self.scenario.in_place().then_some(synced);
            if epochs != [wanted] {
                return Err(format!("{name}-{index} runs in {epochs:?}, and the synced epoch is {synced}"));
            }
        }
        let others = self.api.pods.values().find(|pod| pod.job == name && is_going(pod) && !has_ended(pod));
        others.map_or(Ok(()), |pod| Err(format!("{} is still going", pod.wire.name_any())))
    }

    /// While nothing else moves, the controller comes to rest, and then has nothing more to say.
    pub(super) fn check_rest(&mut self) -> CheckResult {
        let mut last = String::new();
        for round in 0..RECONCILIATIONS_TO_REST {
            while self.controller.work.is_some() {
                self.continue_work()?;
            }
            self.answer_all_slow();
            self.deliver_all()?;
            let later = Duration::from_secs(10 * round);
            let panics = self.controller.planner.panics.take();
            let planned = self.controller.plan_now(self.controller_now(later));
            self.controller.planner.panics.set(panics);
            let Some((base, mut plan)) = planned else { return Ok(()) };
            plan.actions.retain(|action| !self.controller.failing.contains(&Request::of(action)));
            let is_refused =
                |action: &Action| matches!(action, Action::CreateJob(job) if self.quota_error(&job.name).is_some());
            plan.actions.retain(|action| !is_refused(action));
            // A question changes nothing, and is asked once a minute.
            plan.actions.retain(|action| !matches!(action, Action::FindRefusal { .. } | Action::FindWarning { .. }));
            if plan.actions.is_empty() && base.status.clone().unwrap_or_default() == plan.status {
                // Each reconciliation says again what is invalid, and who cannot leave a cordoned node.
                let again = [event::INVALID_SPECIFICATION, event::STAYS_ON_CORDONED_NODE];
                let is_new = |note: &&Note| !again.contains(&note.reason);
                let notes: Vec<&Note> = plan.notes.iter().filter(is_new).collect();
                return ensure(notes.is_empty(), Property::Rest, || format!("nothing changes, and it says {notes:?}"));
            }
            last = format!("{} {:?}", brief(&plan.status), plan.actions.iter().map(name).collect::<Vec<_>>());
            self.start_work_later(later)?;
        }
        Err(Violation::new(Property::Rest, format!("it never comes to rest: {last}")))
    }

    /// The sums that the engine keeps are those of its Pods.
    pub(super) fn check_counts(&self) -> CheckResult {
        let Some(observed) = Observed::of(&self.controller.engine.store, key()) else { return Ok(()) };
        let mut jobs = observed.jobs();
        let wrong = jobs.find_map(|(name, job)| Some((name, observed.pods_of(job)?.miscounted()?)));
        ensure(wrong.is_none(), Property::EngineCounts, || format!("of {wrong:?}"))
    }

    /// At rest, the engine holds what a new engine observes.
    pub(super) fn check_engine(&self) -> CheckResult {
        let mut fresh = Engine::default();
        for event in KINDS.into_iter().flat_map(|kind| self.api.listed(kind)) {
            fresh.apply(event, Instant::now());
        }
        let held = Observed::of(&self.controller.engine.store, key());
        let (Some(held), Some(fresh)) = (held, Observed::of(&fresh.store, key())) else { return Ok(()) };
        ensure(held.jobs().eq(fresh.jobs()), Property::EngineCounts, || {
            "the Jobs are not those that exist".to_owned()
        })?;
        let synced = held.status().synced_epoch;
        for (name, job) in held.jobs() {
            let counts = |observed: &Observed<'_>| observed.pods_of(job).map(|pods| counts(pods, synced));
            let (kept, fresh) = (counts(&held), counts(&fresh));
            ensure(kept == fresh, Property::EngineCounts, || {
                format!("of Job {name} the engine holds {kept:?}, and a new engine {fresh:?}")
            })?;
        }
        Ok(())
    }
}

/// The counts of a Job's Pods that follow from what its Pods are, and not from what was observed before.
fn counts(pods: &JobPods, synced: i32) -> String {
    let alone: Vec<&str> = pods.alone().map(|pod| pod.name.as_str()).collect();
    let unreported: Vec<&str> = pods.unreported().map(|pod| pod.name.as_str()).collect();
    let running: Vec<usize> = (0..=synced + 1).map(|epoch| pods.running_in(epoch)).collect();
    let (reports, suspects, mute) = (pods.reports(), pods.suspect_members(), pods.mute());
    let (succeeded, empty) = (pods.succeeded(), pods.is_empty());
    format!(
        "reports {reports:?}, running {running:?}, suspects {suspects:?}, alone {alone:?}, unreported {unreported:?}, mute \
         {mute}, succeeded {succeeded}, empty {empty}"
    )
}
