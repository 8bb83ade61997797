//! What has to hold of every status that is written, against what has truly happened.

use std::collections::BTreeSet;

use jobset_api::{FailurePolicyAction as Do, JobSet, JobSetStatus, RestartBudget, Scope, conditions};
use jobset_store::{Finished, JobView, Observed};

use super::api::JobObject;
use super::cluster::SimulatedCluster;
use super::jobs::finished;
use super::machine::is_going;
use super::scenario::{JOBSET, key};
use super::slots::{Place, is_current};
use super::truth::SlotId;
use crate::proof::{CheckResult, GroupStatus, Property, Violation, ensure};

impl SimulatedCluster {
    /// The status counts the Jobs of the current attempt that were observed as the Go JobSet counts them.
    pub(super) fn check_counts_of_jobs(&self, base: &JobSet, decided: &JobSetStatus) -> CheckResult {
        let Some(seen) = Observed::of(&self.controller.engine.store, key()) else { return Ok(()) };
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
            ensure(counts.map(Ok) == wanted, Property::CountsOfJobs, || {
                format!("replicatedJob {} has {wanted:?}, counted as {counted:?}", group.name)
            })?;
        }
        Ok(())
    }

    /// An advance is announced as the controller's own only where, as far as it sees, it has something to do that causes
    /// one.
    pub(super) fn check_announcement(&self, base: &JobSet, decided: &JobSetStatus) -> CheckResult {
        let Some(seen) = Observed::of(&self.controller.engine.store, key()) else { return Ok(()) };
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
        let is_stuck = |job| seen.pods_of(job).is_some_and(|pods| pods.stuck().next().is_some());
        let idle = all_are_there
            && jobs().all(|(_, job)| is_in_order(job) && !is_alone(job) && !is_stuck(job))
            && !self.newcomers_have_arrived(&before, |_| true);
        let requested = Self::requested_restart(&before, decided).is_some() || Self::leaves_cordoned(&before, decided);
        ensure(!announced || recreates || requested || !idle, Property::OneRestartPerIncident, || {
            format!("the advance to epoch {} is announced, and nothing is to be done", decided.free_epoch)
        })
    }

    /// The status that has just been written over another one.
    pub(super) fn check_write(&mut self, before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
        GroupStatus::of(after).check(&GroupStatus::of(before))?;
        self.check_requests(before, after)?;
        self.check_leaving_cordoned(before, after)?;
        self.check_restart(before, after)?;
        self.check_partial_restarts(before, after)?;
        self.check_deadline(before, after)?;
        self.check_end(before, after)?;
        self.check_execution_attempts(before, after)?;
        self.check_backoff(before, after)?;
        self.check_nodes(before, after)?;
        self.check_ledger(before, after)?;
        let epoch = after.synced_epoch;
        if epoch > before.synced_epoch {
            self.check_lift(before, after)?;
            self.check_moved(before, epoch)?;
            let machines = &self.machines;
            let pods = &self.api.pods;
            let goes_on = |slot: &SlotId| {
                machines.values().any(|it| {
                    let is_there = pods.get(&it.pod).is_some_and(|pod| !is_going(pod));
                    let entered = it.agent.as_ref().and_then(|agent| agent.entered);
                    it.is_of(slot) && is_there && entered == Some(epoch)
                })
            };
            self.truth.lifted(epoch, goes_on);
        }
        Ok(())
    }

    /// A restart has a cause, is counted once, and no epoch ends without a count but those that the controller ends.
    fn check_restart(&self, before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
        if Self::requested_restart(before, after).is_some() || Self::leaves_cordoned(before, after) {
            return Ok(());
        }
        let (was, is) = (GroupStatus::of(before), GroupStatus::of(after));
        let (restarts, counted) = (is.restarts > was.restarts, is.counted > was.counted);
        if is.recreations > was.recreations {
            return self.check_recreation(before, restarts, counted);
        }
        let epoch = was.synced;
        let is_free = is.free == epoch + 1 || is.synced > epoch && self.newcomers_have_arrived(before, |_| true);
        let partial = partial_restarts(before) != partial_restarts(after);
        if !restarts {
            return ensure(!is.ends(&was) || is_free, Property::ExactBudget, || {
                format!("epoch {epoch} ends, and nobody counts it")
            });
        }
        if partial && !counted { Ok(()) } else { self.check_incident(epoch, counted) }
    }

    /// Something has struck a worker of this epoch.
    fn check_incident(&self, epoch: i32, counted: bool) -> CheckResult {
        if !self.truth.was_struck_in(epoch) {
            let asked = self.truth.was_asked_in(epoch);
            let property = if asked { Property::OwnDeletionsAreNoFailures } else { Property::OneRestartPerIncident };
            return Err(Violation::new(
                property,
                format!("a restart is counted in epoch {epoch}, in which nothing failed"),
            ));
        }
        let disrupted = self.truth.was_disrupted_in(epoch);
        let rules = self.api.jobset.spec.failure_policy.iter().flat_map(|policy| &policy.rules);
        let can_ignore = rules.filter(|rule| rule.on_job_failure_reasons.is_empty()).any(|rule| {
            matches!(rule.action, Do::RestartJobSetAndIgnoreMaxRestarts | Do::RestartJobAndIgnoreMaxRestarts)
        });
        ensure(counted || disrupted && can_ignore, Property::ExactBudget, || {
            format!("the restart from epoch {epoch} is not counted, and no rule says so")
        })
    }

    fn check_recreation(&self, before: &JobSetStatus, restarts: bool, counted: bool) -> CheckResult {
        let epoch = before.synced_epoch;
        let in_place = self.scenario.in_place() && epoch > 0;
        if !restarts {
            return ensure(in_place && before.deprecated_epoch == epoch, Property::ExactBudget, || {
                "all Jobs are recreated, and nobody counts it".to_owned()
            });
        }
        let expected = if counted { Do::RestartJobSet } else { Do::RestartJobSetAndIgnoreMaxRestarts };
        if self.failed_jobs(before).any(|(_, action)| action == Some(expected)) {
            return Ok(());
        }
        // What was done may have gone with a Job that somebody has deleted, or with a node.
        let is_gone = self.truth.job_was_deleted_by_hand || self.truth.work_was_lost;
        let any_is_done = self.any_is_done() || is_gone;
        ensure(in_place && any_is_done, Property::OneRestartPerIncident, || {
            "all Jobs are recreated, and none of them failed".to_owned()
        })?;
        // Uncounted, it may be the end of a suspension.
        if counted { self.check_incident(epoch, true) } else { Ok(()) }
    }

    fn check_partial_restarts(&self, before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
        for group in &after.replicated_jobs_status {
            let known = before.replicated_job(&group.name);
            let failed = |action: Do, index: Option<i32>| {
                self.failed_jobs(before).any(|(job, by)| {
                    let of_index = index.is_none_or(|index| job.view.index == Some(index));
                    job.view.replicated_job == group.name && of_index && by == Some(action)
                })
            };
            let more = group.restarts - known.map_or(0, |it| it.restarts);
            let justified = more == 0 || more == 1 && failed(Do::RestartReplicatedJob, None);
            ensure(justified, Property::ExactBudget, || format!("restarts of {}: {group:?}", group.name))?;
            for (index, restarts) in (0..).zip(&group.job_restarts) {
                let of = |counters: &Vec<i32>| {
                    usize::try_from(index).ok().and_then(|it| counters.get(it)).copied().unwrap_or(0)
                };
                let more = restarts - known.map_or(0, |it| of(&it.job_restarts));
                let counted = of(&group.job_restarts_count_towards_max);
                let counts = counted - known.map_or(0, |it| of(&it.job_restarts_count_towards_max));
                let justified = match (more, counts) {
                    (0, 0) => true,
                    (1, 0) => {
                        failed(Do::RestartJobAndIgnoreMaxRestarts, Some(index))
                            || leaves_as_a_whole(before, after, &group.name, index)
                    }
                    (1, 1) => failed(Do::RestartJob, Some(index)) || failed(Do::RecreateJob, Some(index)),
                    _ => false,
                };
                ensure(justified, Property::ExactBudget, || {
                    format!("restarts of Job {index} of {}: {group:?}", group.name)
                })?;
            }
        }
        Ok(())
    }

    /// The JobSet ends as it must.
    fn check_end(&self, before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
        let spec = &self.api.jobset.spec;
        let (max_restarts, budget) = (spec.max_restarts(), self.scenario.budget);
        let annotated = RestartBudget::annotated(&self.api.jobset);
        // A panic is told of before anything is counted.
        let counts = after.group_restarts > before.group_restarts || !after.replicated_jobs_status.is_empty();
        ensure(!counts || annotated == Some(budget), Property::ExactBudget, || {
            format!("the budget is {budget:?}, and a status is written with {annotated:?}")
        })?;
        let (scope, most) = budget.most_spent(after);
        ensure(most <= max_restarts, Property::ExactBudget, || {
            format!("{most} restarts of {scope:?} are counted of {max_restarts}")
        })?;
        let is_spent = |scope| budget.spent(after, scope) == max_restarts;
        let Some(end) = conditions::terminal(&after.conditions).filter(|_| before.terminal_state.is_empty()) else {
            let stays = before.terminal_state == after.terminal_state;
            return ensure(stays, Property::ExactBudget, || "it has ended and goes on".to_owned());
        };
        let jobs: Vec<Option<bool>> = self.wanted_jobs(after).map(|(_, job)| finished(&job?.job)).collect();
        let failed_with = |action| self.failed_jobs(before).any(|(_, by)| by == action);
        let holds = match end.reason.as_str() {
            conditions::ALL_JOBS_COMPLETED => jobs.iter().all(|ended| *ended == Some(true)),
            conditions::FAIL_JOB_SET_ACTION => failed_with(Some(Do::FailJobSet)),
            conditions::FAILED_JOBS => failed_with(None),
            // Steps are looked at elsewhere.
            conditions::NO_PROGRESS => true,
            conditions::DEADLINE_EXCEEDED => self.deadline_has_passed(after),
            // A Job may be gone, and the controller has not observed it.
            conditions::JOBS_LEFT_FAILED => {
                let runs = |(_, job): (String, Option<&JobObject>)| job.is_some_and(|it| finished(&it.job).is_none());
                failed_with(Some(Do::FailJob)) && !self.wanted_jobs(after).any(runs)
            }
            conditions::WORKER_NOT_STARTED => self.truth.most_strikes() > max_restarts,
            _ if Self::fails_on_request(before, after) => is_spent(Scope::JobSet),
            _ => {
                self.failed_jobs(before).any(|(job, action)| match action {
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
        let property = match end.reason.as_str() {
            conditions::WORKER_NOT_STARTED if self.truth.refusals > 0 => Property::RefusalsAreFree,
            reason if conditions::is_by_max_restarts(reason) => Property::ExactBudget,
            _ => Property::NoHang,
        };
        ensure(holds, property, || format!("it ends, and nothing says so: {} ({})", end.message, end.reason))
    }

    /// Every open slot of the group has reported the epoch whose workers may now run. Newcomers may come later.
    fn check_lift(&mut self, before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
        let epoch = after.synced_epoch;
        let members = if before.synced_epoch > 0 { self.recorded(before) } else { BTreeSet::new() };
        let belongs = |place: &Place| members.is_empty() || members.contains(place);
        // The slots that are expected (`docs/src/protocol.md`, "State"): one that goes when its Job is resized is waited for only where it is
        // observed.
        for slot in self.open_slots(after).filter(|slot| belongs(&slot.place)) {
            ensure(self.has_arrived(&slot, epoch), Property::Barrier, || {
                format!("epoch {epoch} begins, and {:?} has not reported it", slot.place)
            })?;
        }
        // The controller may not know yet that somebody has deleted a Job. Its slots had reported.
        let missing = self.missing_jobs(after);
        let is_there = self.truth.job_was_deleted_by_hand || !missing.iter().any(|name| belongs(&(name.clone(), 0)));
        ensure(is_there, Property::Barrier, || format!("epoch {epoch} begins, and {missing:?} is missing"))?;
        let (mut recorded, present) = (self.recorded(after), self.present(after));
        recorded.retain(|(job, _)| !missing.contains(job));
        ensure(recorded.is_subset(&present), Property::Barrier, || {
            format!("epoch {epoch} begins with {recorded:?}, and only {present:?} have reported it")
        })?;
        self.truth.present = self.participants(after);
        Ok(())
    }

    /// A Job loses Pods of the group only once all others have been told to restart.
    pub(super) fn check_shrink(&self, name: &str, pods: i32) -> CheckResult {
        let (status, present) = (self.api.status(), &self.truth.present);
        let is_over = status.deprecated_epoch >= status.synced_epoch || !status.terminal_state.is_empty();
        let loses = |(job, index): &(String, i32)| job == name && *index >= pods;
        ensure(is_over || !present.iter().any(loses), Property::ShrinkRestarts, || {
            format!("{name} keeps {pods} Pods, and the others go on in epoch {}", status.synced_epoch)
        })
    }
}

/// Whether this write begins a restart with which the Job leaves an avoided node as a whole.
fn leaves_as_a_whole(before: &JobSetStatus, after: &JobSetStatus, group: &str, index: i32) -> bool {
    let job = format!("{JOBSET}-{group}-{index}-");
    let mut moving = after.avoided_nodes.iter().flat_map(|it| &it.moving);
    after.group_restarts > before.group_restarts && moving.any(|pod| pod.starts_with(&job))
}

fn partial_restarts(status: &JobSetStatus) -> Vec<(i32, Vec<i32>)> {
    let restarted = status.replicated_jobs_status.iter().filter(|it| it.restarts > 0 || !it.job_restarts.is_empty());
    restarted.map(|it| (it.restarts, it.job_restarts.clone())).collect()
}
