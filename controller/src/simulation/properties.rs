//! What has to hold of every status that is written, against what has truly happened.

use std::collections::BTreeSet;
use std::fmt;

use jobset_api::{FailurePolicyAction as Do, JobSet, JobSetStatus, RestartBudget, Scope, conditions, names};
use kube::ResourceExt;

use super::api::JobObject;
use super::cluster::{Checked, SimulatedCluster};
use super::jobs::finished;
use super::machine::is_going;
use super::scenario::key;
use super::truth::{JobFailure, SlotId};
use crate::engine::members::Members;
use crate::engine::{Finished, JobView};
use crate::observe::Observed;

/// What the simulation proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimulationProperty {
    NoHang = 1,
    OneEpochPerIncident,
    ExactBudget,
    CountsOfJobs,
    OwnDeletionsAreNoFailures,
    Rest,
    Barrier,
    Counts,
    ShrinkRestarts,
    FreeEpoch,
    Facts,
    UrgentFirst,
}

/// A property that does not hold.
#[derive(Clone, Debug)]
pub(super) struct SimulationViolation {
    pub property: SimulationProperty,
    message: String,
}

impl SimulationViolation {
    pub(super) fn new(property: SimulationProperty, message: impl Into<String>) -> Self {
        Self { property, message: message.into() }
    }
}

impl fmt::Display for SimulationViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "property {} ({:?}): {}", self.property as u8, self.property, self.message)
    }
}

pub(super) fn ensure(holds: bool, property: SimulationProperty, message: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(SimulationViolation::new(property, message())) }
}

impl SimulatedCluster {
    /// The status counts the Jobs of the current attempt that were seen as the Go JobSet counts them.
    pub(super) fn check_counts_of_jobs(&self, base: &JobSet, decided: &JobSetStatus) -> Checked {
        let Some(seen) = Observed::of(&self.controller.engine, key()) else { return Ok(()) };
        let status = base.status.clone().unwrap_or_default();
        for group in &base.spec.replicated_jobs {
            let places = 0..group.replicas();
            let is_its =
                |job: &JobView| job.replicated_job == group.name && job.index.is_some_and(|it| places.contains(&it));
            let jobs = seen.jobs().filter(|(_, job)| !job.deleting && is_its(job) && is_current(&status, job));
            let jobs: Vec<&JobView> = jobs.map(|(_, job)| job).collect();
            let count = |of: fn(&JobView) -> bool| i32::try_from(jobs.iter().filter(|job| of(job)).count());
            let wanted = [
                count(|job| job.finished.is_none() && job.ready + job.succeeded >= job.pods),
                count(|job| job.finished.is_none() && job.active > 0),
                count(|job| job.finished.is_none() && job.suspended),
                count(|job| job.finished == Some(Finished::Completed)),
                count(|job| matches!(job.finished, Some(Finished::Failed { .. }))),
            ];
            let counted = decided.replicated_job(&group.name).cloned().unwrap_or_default();
            let counts = [counted.ready, counted.active, counted.suspended, counted.succeeded, counted.failed];
            ensure(counts.map(Ok) == wanted, SimulationProperty::CountsOfJobs, || {
                format!("replicatedJob {} has {wanted:?}, counted as {counted:?}", group.name)
            })?;
        }
        Ok(())
    }

    /// An advance is announced as the controller's own only where, as far as it sees, it has something to do that causes
    /// one.
    pub(super) fn check_announcement(&self, base: &JobSet, decided: &JobSetStatus) -> Checked {
        let Some(seen) = Observed::of(&self.controller.engine, key()) else { return Ok(()) };
        let before = base.status.clone().unwrap_or_default();
        let announced = decided.free_epoch != before.free_epoch && decided.free_epoch != 0;
        let recreates = decided.restarts > before.restarts || partial_restarts(&before) != partial_restarts(decided);
        let groups = &base.spec.replicated_jobs;
        let is_in_order = |job: &JobView| {
            groups.iter().any(|group| {
                let is_its =
                    group.name == job.replicated_job && job.index.is_some_and(|index| index < group.replicas());
                is_its && (job.finished.is_some() || !job.suspended && group.template.spec.pods() == job.pods)
            })
        };
        let jobs = || seen.jobs().filter(|(_, job)| !job.deleting && is_current(&before, job));
        let all_are_there = i64::try_from(jobs().count()).is_ok_and(|jobs| jobs >= base.spec.global_replicas());
        let is_alone = |job| seen.pods_of(job).is_some_and(|pods| pods.alone().next().is_some());
        let idle = all_are_there
            && jobs().all(|(_, job)| is_in_order(job) && !is_alone(job))
            && !self.newcomers_have_arrived(&before);
        ensure(!announced || recreates || !idle, SimulationProperty::OneEpochPerIncident, || {
            format!("the advance to epoch {} is announced, and nothing is to be done", decided.free_epoch)
        })
    }

    /// The status that has just been written over another one.
    pub(super) fn check_write(&mut self, before: &JobSetStatus, after: &JobSetStatus) -> Checked {
        check_growth(before, after)?;
        let (synced, free) = (after.synced_epoch, after.free_epoch);
        ensure(
            free == 0 || after.deprecated_epoch == synced && free == synced + 1,
            SimulationProperty::FreeEpoch,
            || format!("epoch {free} is free, and the group does not restart: {}", super::controller::brief(after)),
        )?;
        self.check_restart(before, after)?;
        self.check_partial_restarts(before, after)?;
        self.check_end(before, after)?;
        let epoch = after.synced_epoch;
        if epoch > before.synced_epoch {
            self.check_lift(before, after)?;
            let machines = &self.machines;
            let pods = &self.api.pods;
            let goes_on = |slot: &SlotId| {
                machines.values().any(|it| {
                    let is_there = pods.get(&it.pod).is_some_and(|pod| !is_going(pod));
                    let entered = it.agent.as_ref().and_then(|agent| agent.entered);
                    (&it.job_uid, it.index) == (&slot.0, slot.1) && is_there && entered == Some(epoch)
                })
            };
            self.truth.lifted(epoch, goes_on);
        }
        Ok(())
    }

    /// A restart has a cause, is counted once, and no epoch ends without a count but those that the controller ends.
    fn check_restart(&self, before: &JobSetStatus, after: &JobSetStatus) -> Checked {
        let recreated = after.restarts - before.restarts;
        let group = after.group_restarts - before.group_restarts;
        let counted = after.restarts_count_towards_max - before.restarts_count_towards_max;
        let once = [recreated, group, counted].iter().all(|by| (0..=1).contains(by));
        ensure(once && counted <= group, SimulationProperty::ExactBudget, || {
            format!("recreations rise by {recreated}, restarts by {group}, counted ones by {counted}")
        })?;
        if recreated > 0 {
            return self.check_recreation(before, group > 0, counted > 0);
        }
        let epoch = before.synced_epoch;
        let ends = epoch > 0 && before.deprecated_epoch < epoch && after.deprecated_epoch >= epoch;
        let is_free =
            after.free_epoch == epoch + 1 || after.synced_epoch > epoch && self.newcomers_have_arrived(before);
        let partial = partial_restarts(before) != partial_restarts(after);
        if group == 0 {
            return ensure(!ends || is_free, SimulationProperty::ExactBudget, || {
                format!("epoch {epoch} ends, and nobody counts it")
            });
        }
        ensure(ends, SimulationProperty::OneEpochPerIncident, || {
            format!("a restart of the group that does not end epoch {epoch}")
        })?;
        if partial && counted == 0 { Ok(()) } else { self.check_incident(epoch, counted > 0) }
    }

    /// Something has struck a worker of this epoch.
    fn check_incident(&self, epoch: i32, counted: bool) -> Checked {
        if !self.truth.was_struck_in(epoch) {
            let asked = self.truth.was_asked_in(epoch);
            let property = if asked {
                SimulationProperty::OwnDeletionsAreNoFailures
            } else {
                SimulationProperty::OneEpochPerIncident
            };
            return Err(SimulationViolation::new(
                property,
                format!("a restart is counted in epoch {epoch}, in which nothing failed"),
            ));
        }
        let disrupted = self.truth.was_disrupted_in(epoch);
        let rules = self.api.jobset.spec.failure_policy.iter().flat_map(|policy| &policy.rules);
        let can_ignore = rules.filter(|rule| rule.on_job_failure_reasons.is_empty()).any(|rule| {
            matches!(rule.action, Do::RestartJobSetAndIgnoreMaxRestarts | Do::RestartJobAndIgnoreMaxRestarts)
        });
        ensure(counted || disrupted && can_ignore, SimulationProperty::ExactBudget, || {
            format!("the restart from epoch {epoch} is not counted, and no rule says so")
        })
    }

    fn check_recreation(&self, before: &JobSetStatus, restarts: bool, counted: bool) -> Checked {
        let epoch = before.synced_epoch;
        let in_place = self.scenario.in_place() && epoch > 0;
        if !restarts {
            return ensure(in_place && before.deprecated_epoch == epoch, SimulationProperty::ExactBudget, || {
                "all Jobs are recreated, and nobody counts it".to_owned()
            });
        }
        let actions: Vec<Option<Do>> = self.failed_jobs(before).map(|job| self.action(job)).collect();
        let by_policy = |action| actions.contains(&Some(action));
        let expected = if counted { Do::RestartJobSet } else { Do::RestartJobSetAndIgnoreMaxRestarts };
        if by_policy(expected) {
            return Ok(());
        }
        ensure(in_place && self.someone_is_done(), SimulationProperty::OneEpochPerIncident, || {
            "all Jobs are recreated, and none of them failed".to_owned()
        })?;
        // Uncounted, it may be the end of a suspension.
        if counted { self.check_incident(epoch, true) } else { Ok(()) }
    }

    fn check_partial_restarts(&self, before: &JobSetStatus, after: &JobSetStatus) -> Checked {
        for group in &after.replicated_jobs_status {
            let known = before.replicated_job(&group.name);
            let failed = |action: Do, index: Option<i32>| {
                self.failed_jobs(before).any(|job| {
                    let of_index = index.is_none_or(|index| job.view.index == Some(index));
                    job.view.replicated_job == group.name && of_index && self.action(job) == Some(action)
                })
            };
            let more = group.restarts - known.map_or(0, |it| it.restarts);
            let justified = more == 0 || more == 1 && failed(Do::RestartReplicatedJob, None);
            ensure(justified, SimulationProperty::ExactBudget, || format!("restarts of {}: {group:?}", group.name))?;
            for (index, restarts) in (0..).zip(&group.job_restarts) {
                let of = |counters: &Vec<i32>| {
                    usize::try_from(index).ok().and_then(|it| counters.get(it)).copied().unwrap_or(0)
                };
                let more = restarts - known.map_or(0, |it| of(&it.job_restarts));
                let counted = of(&group.job_restarts_count_towards_max);
                let counts = counted - known.map_or(0, |it| of(&it.job_restarts_count_towards_max));
                let justified = match (more, counts) {
                    (0, 0) => true,
                    (1, 0) => failed(Do::RestartJobAndIgnoreMaxRestarts, Some(index)),
                    (1, 1) => failed(Do::RestartJob, Some(index)) || failed(Do::RecreateJob, Some(index)),
                    _ => false,
                };
                ensure(justified, SimulationProperty::ExactBudget, || {
                    format!("restarts of Job {index} of {}: {group:?}", group.name)
                })?;
            }
        }
        Ok(())
    }

    /// The JobSet ends as it must.
    fn check_end(&self, before: &JobSetStatus, after: &JobSetStatus) -> Checked {
        let spec = &self.api.jobset.spec;
        let (max_restarts, budget) = (spec.max_restarts(), self.scenario.budget);
        let annotated = RestartBudget::annotated(&self.api.jobset);
        // A panic is told of before anything is counted.
        let counts = after.group_restarts > before.group_restarts || !after.replicated_jobs_status.is_empty();
        ensure(!counts || annotated == Some(budget), SimulationProperty::ExactBudget, || {
            format!("the budget is {budget:?}, and a status is written with {annotated:?}")
        })?;
        let (scope, most) = budget.most_spent(after);
        ensure(most <= max_restarts, SimulationProperty::ExactBudget, || {
            format!("{most} restarts of {scope:?} are counted of {max_restarts}")
        })?;
        let is_spent = |scope| budget.spent(after, scope) == max_restarts;
        let Some(end) = conditions::terminal(&after.conditions).filter(|_| before.terminal_state.is_empty()) else {
            let stays = before.terminal_state == after.terminal_state;
            return ensure(stays, SimulationProperty::ExactBudget, || "it has ended and goes on".to_owned());
        };
        let jobs: Vec<Option<bool>> = self.wanted_jobs(after).map(|job| finished(&job?.job)).collect();
        let failed_with = |action| self.failed_jobs(before).any(|job| self.action(job) == action);
        let holds = match end.reason.as_str() {
            conditions::ALL_JOBS_COMPLETED => jobs.iter().all(|ended| *ended == Some(true)),
            conditions::FAIL_JOB_SET_ACTION => failed_with(Some(Do::FailJobSet)),
            conditions::FAILED_JOBS => failed_with(None),
            conditions::JOBS_LEFT_FAILED => failed_with(Some(Do::FailJob)) && jobs.iter().all(Option::is_some),
            conditions::WORKER_NOT_STARTED => self.truth.most_strikes() > max_restarts,
            _ => {
                self.failed_jobs(before).any(|job| match self.action(job) {
                    Some(Do::RestartJob | Do::RecreateJob) => {
                        let (replicated_job, index) = (&job.view.replicated_job[..], job.view.index.unwrap_or(-1));
                        is_spent(Scope::Job { replicated_job, index })
                    }
                    Some(Do::RestartReplicatedJob) => is_spent(Scope::ReplicatedJob(&job.view.replicated_job)),
                    Some(Do::RestartJobSet) => is_spent(Scope::JobSet),
                    _ => false,
                }) || {
                    self.check_incident(before.synced_epoch, true)?;
                    is_spent(Scope::JobSet)
                }
            }
        };
        let of_budget = conditions::is_by_max_restarts(&end.reason);
        let property = if of_budget { SimulationProperty::ExactBudget } else { SimulationProperty::NoHang };
        ensure(holds, property, || format!("it ends, and nothing says so: {} ({})", end.message, end.reason))
    }

    /// Every open slot of the group has reported the epoch whose workers may now run. Newcomers may come later.
    fn check_lift(&mut self, before: &JobSetStatus, after: &JobSetStatus) -> Checked {
        let epoch = after.synced_epoch;
        let members = if before.synced_epoch > 0 { self.recorded(before) } else { BTreeSet::new() };
        let belongs = |job: &str, index: i32| members.is_empty() || members.contains(&(job.to_owned(), index));
        for group in &self.api.jobset.spec.replicated_jobs {
            let wanted = group.template.spec.pods();
            for job in self.wanted_jobs(after).flatten() {
                let view = JobView::of(&job.job);
                if view.replicated_job != group.name || finished(&job.job).is_some() {
                    continue;
                }
                // The slots that are expected (protocol.md): one that goes when its Job is resized is waited for only where
                // it is seen.
                for index in 0..wanted {
                    let slot = (view.uid.clone(), index);
                    let waits = !self.is_done(job, &slot) && !self.truth.has_reported(&slot, epoch);
                    ensure(!waits || !belongs(&job.job.name_any(), index), SimulationProperty::Barrier, || {
                        format!("epoch {epoch} begins, and slot {index} of {} has not reported it", job.job.name_any())
                    })?;
                }
            }
        }
        // Of a Job that somebody has just deleted, nobody may know yet. Its slots had reported.
        let jobs = self.wanted_names().zip(self.wanted_jobs(after));
        let missing: BTreeSet<String> = jobs.filter(|(_, job)| job.is_none()).map(|(name, _)| name).collect();
        let is_there = self.truth.job_was_deleted_by_hand || !missing.iter().any(|name| belongs(name, 0));
        ensure(is_there, SimulationProperty::Barrier, || format!("epoch {epoch} begins, and {missing:?} is missing"))?;
        let (mut recorded, present) = (self.recorded(after), self.present(after));
        recorded.retain(|(job, _)| !missing.contains(job));
        ensure(recorded.is_subset(&present), SimulationProperty::Barrier, || {
            format!("epoch {epoch} begins with {recorded:?}, and only {present:?} have reported it")
        })?;
        self.truth.present = present;
        Ok(())
    }

    /// The Pods of the specified size that have reported this epoch or are done: the epoch begins with them.
    fn present(&self, status: &JobSetStatus) -> BTreeSet<(String, i32)> {
        let epoch = status.synced_epoch;
        let mut present = BTreeSet::new();
        for job in self.wanted_jobs(status).flatten() {
            let view = JobView::of(&job.job);
            for index in 0..self.specified_pods(&view) {
                let slot = (view.uid.clone(), index);
                if self.is_done(job, &slot) || finished(&job.job).is_some() || self.truth.has_reported(&slot, epoch) {
                    present.insert((job.job.name_any(), index));
                }
            }
        }
        present
    }

    /// Whether a Pod in this place finds a node although the cluster is full: the group has had one there.
    pub(super) fn has_place(&self, job: &str, index: i32) -> bool {
        self.truth.present.contains(&(job.to_owned(), index)) || self.is_recorded(job, index)
    }

    /// Whether this Pod is a member of the present epoch.
    pub(super) fn is_recorded(&self, job: &str, index: i32) -> bool {
        self.recorded(&self.api.status()).contains(&(job.to_owned(), index))
    }

    /// Whether the members of the group can run although other Pods find no node.
    pub(super) fn can_run_without_newcomers(&self, status: &JobSetStatus) -> bool {
        self.scenario.in_place() && status.synced_epoch > 0 && !self.recorded(status).is_empty()
    }

    fn specified_pods(&self, job: &JobView) -> i32 {
        let groups = &self.api.jobset.spec.replicated_jobs;
        groups.iter().find(|group| group.name == job.replicated_job).map_or(0, |group| group.template.spec.pods())
    }

    /// The Pods that the status records as those that the epoch began with.
    fn recorded(&self, status: &JobSetStatus) -> BTreeSet<(String, i32)> {
        let mut recorded = BTreeSet::new();
        for group in &self.api.jobset.spec.replicated_jobs {
            let members = Members::of(status.replicated_job(&group.name));
            for job in 0..group.replicas() {
                let (name, members) = (names::job(super::scenario::JOBSET, &group.name, job), members.of_job(job));
                let indexes = (0..group.template.spec.pods()).filter(|index| members.contains(*index));
                recorded.extend(indexes.map(|index| (name.clone(), index)));
            }
        }
        recorded
    }

    /// Whether Pods have joined the specification, and all of them have reported the epoch after this one.
    fn newcomers_have_arrived(&self, status: &JobSetStatus) -> bool {
        let (next, members) = (status.synced_epoch + 1, self.recorded(status));
        let open = self.wanted_jobs(status).flatten().filter(|job| finished(&job.job).is_none());
        let slots = open.flat_map(|job| {
            let view = JobView::of(&job.job);
            (0..self.specified_pods(&view)).map(move |index| (job.job.name_any(), view.uid.clone(), index))
        });
        let mut newcomers = slots.filter(|(name, _, index)| !members.contains(&(name.clone(), *index))).peekable();
        newcomers.peek().is_some() && newcomers.all(|(_, uid, index)| self.truth.has_reported(&(uid, index), next))
    }

    /// A Job loses Pods of the group only once all others have been told to restart.
    pub(super) fn check_shrink(&self, name: &str, pods: i32) -> Checked {
        let (status, present) = (self.api.status(), &self.truth.present);
        let is_over = status.deprecated_epoch >= status.synced_epoch || !status.terminal_state.is_empty();
        let loses = |(job, index): &(String, i32)| job == name && *index >= pods;
        ensure(is_over || !present.iter().any(loses), SimulationProperty::ShrinkRestarts, || {
            format!("{name} keeps {pods} Pods, and the others go on in epoch {}", status.synced_epoch)
        })
    }

    fn wanted_names(&self) -> impl Iterator<Item = String> {
        self.api.jobset.spec.replicated_jobs.iter().flat_map(|group| {
            (0..group.replicas()).map(|index| names::job(super::scenario::JOBSET, &group.name, index))
        })
    }

    /// The Job of each place of the current attempt, if it is there.
    pub(super) fn wanted_jobs<'a>(&'a self, status: &'a JobSetStatus) -> impl Iterator<Item = Option<&'a JobObject>> {
        self.api.jobset.spec.replicated_jobs.iter().flat_map(move |group| {
            (0..group.replicas()).map(move |index| {
                let name = names::job(super::scenario::JOBSET, &group.name, index);
                let found = self.api.jobs.get(&name).filter(|found| found.job.metadata.deletion_timestamp.is_none());
                found.filter(|found| is_current(status, &JobView::of(&found.job)))
            })
        })
    }

    /// Jobs of the current attempt that have failed.
    fn failed_jobs<'a>(&'a self, status: &'a JobSetStatus) -> impl Iterator<Item = &'a JobFailure> {
        self.truth.failed_jobs.iter().filter(|job| is_current(status, &job.view))
    }

    fn action(&self, job: &JobFailure) -> Option<Do> {
        self.scenario.action(&job.view.replicated_job, &job.reason)
    }

    fn is_done(&self, job: &JobObject, slot: &SlotId) -> bool {
        let ended_well = |it: &super::machine::SimulatedMachine| {
            (&it.job_uid, it.index) == (&slot.0, slot.1) && it.ended == Some(true)
        };
        job.completed.contains(&slot.1) || self.machines.values().any(ended_well)
    }

    fn someone_is_done(&self) -> bool {
        self.api.jobs.values().any(|job| !job.completed.is_empty() || finished(&job.job).is_some())
            || self.machines.values().any(|machine| machine.ended == Some(true))
    }
}

fn partial_restarts(status: &JobSetStatus) -> Vec<(i32, Vec<i32>)> {
    let restarted = status.replicated_jobs_status.iter().filter(|it| it.restarts > 0 || !it.job_restarts.is_empty());
    restarted.map(|it| (it.restarts, it.job_restarts.clone())).collect()
}

/// Said again here: the rule that is proved does not prove itself.
pub(super) fn is_current(status: &JobSetStatus, job: &JobView) -> bool {
    let attempt = status.job_attempt(&job.replicated_job, job.index.unwrap_or(-1));
    job.attempt.is_some_and(|of_set| of_set >= status.restarts) && job.job_attempt >= attempt
}

fn check_growth(before: &JobSetStatus, after: &JobSetStatus) -> Checked {
    let epochs = |status: &JobSetStatus| (status.deprecated_epoch, status.synced_epoch);
    let ((d, s), (later_d, later_s)) = (epochs(before), epochs(after));
    let advances = d <= later_d && s <= later_s && later_s <= s + 1 && later_d <= later_s;
    ensure(advances, SimulationProperty::OneEpochPerIncident, || {
        format!("epochs {:?} after {:?}", (later_d, later_s), (d, s))
    })?;
    let counters = |it: &JobSetStatus| [it.restarts, it.group_restarts, it.restarts_count_towards_max];
    let grow = counters(before).iter().zip(counters(after)).all(|(before, after)| *before <= after);
    ensure(grow, SimulationProperty::ExactBudget, || {
        format!("counters {:?} after {:?}", counters(after), counters(before))
    })
}
