//! Success policies of Jobs: incidents in which a Job succeeds while Pods of its own fail, and that such a success is final.
//!
//! The Job controller says some time after the decisive Pod has ended that the policy is met. Until then, only the Pods say
//! it.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use jobset_api::{FailurePolicyAction, JobSet, JobSetStatus, conditions};
use jobset_store::pods::PodPhase;
use jobset_store::{JobView, Observed, Ranges};
use k8s_openapi::api::batch::v1::{Job, SuccessPolicy};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::api::{JobObject, PodObject};
use super::cluster::{SimulatedCluster, pick};
use super::extremes::{MOST_PODS, places};
use super::faults::CODES;
use super::jobs::{finished, pod_fails_job};
use super::machine::{SimulatedMachine, has_ended, is_going};
use super::scenario::{FATAL, key};
use super::truth::SlotId;
use crate::proof::{CheckResult, Property, RuleMutation, ensure};

/// How long the controller waits at least for the Job controller to say what the Pods say, in milliseconds.
const SPEAKS_WITHIN: i64 = 5_000;
/// Longest time from the begin of an incident to the exit of a worker, in milliseconds.
const INCIDENT: i64 = 3_000;
/// Steps in which one incident is expected.
const STEPS: u32 = 60;

/// A worker that is about to exit.
#[derive(Debug)]
pub(super) struct DueExit {
    /// In milliseconds.
    at: i64,
    uid: String,
    code: i32,
}

/// Gives some Jobs a success policy. Returns whether any has one.
pub(super) fn draw_policies(rng: &mut Rng, spec: &mut Value) -> bool {
    if rng.u8(..4) != 0 {
        return false;
    }
    let policies = [
        json!([{"succeededIndexes": "0"}]),
        json!([{"succeededIndexes": "0"}]),
        json!([{"succeededCount": 1}]),
        json!([{"succeededIndexes": "0-1", "succeededCount": 1}]),
        json!([{"succeededIndexes": "1"}, {"succeededCount": 2}]),
    ];
    let mut any = false;
    for group in spec["replicatedJobs"].as_array_mut().into_iter().flatten() {
        let job = &mut group["template"]["spec"];
        if job["completions"].as_i64().is_some_and(|pods| pods > 1) && rng.u8(..4) != 0 {
            job["successPolicy"] = json!({"rules": policies[rng.usize(..policies.len())]});
            any = true;
        }
    }
    any
}

/// Index of the first rule that these succeeded indexes meet, as the Job controller evaluates it.
pub(super) fn rule_met(policy: &SuccessPolicy, completions: i32, succeeded: &BTreeSet<i32>) -> Option<usize> {
    let reaches =
        |met: usize, wanted: Option<i64>| wanted.is_some_and(|it| i64::try_from(met).is_ok_and(|met| met >= it));
    policy.rules.iter().position(|rule| {
        let count = rule.succeeded_count.map(i64::from);
        let Some(indexes) = &rule.succeeded_indexes else { return reaches(succeeded.len(), count) };
        let wanted = Ranges::parse(indexes);
        let required = wanted.count_below(completions.into());
        let met = succeeded.iter().filter(|index| wanted.contains(**index)).count();
        required > 0 && (reaches(met, Some(required)) || reaches(met, count))
    })
}

impl SimulatedCluster {
    /// The Job as its JobSet specifies it, where the controller that builds it does not observe the success policy.
    pub(super) fn with_success_policy(&self, mut job: Job) -> Job {
        if self.broken == Some(RuleMutation::SuccessPolicyNotObserved) {
            let name = JobView::of(&job).replicated_job;
            let mut groups = self.api.jobset.spec.replicated_jobs.iter();
            let group = groups.find(|group| group.name == name);
            job.spec.get_or_insert_default().success_policy =
                group.and_then(|it| it.template.spec.success_policy.clone());
        }
        job
    }

    /// What happens in a step because some Jobs have a success policy.
    pub(super) fn step_incidents(&mut self) {
        if self.scenario.has_success_policy && self.extra.u32(..STEPS) == 0 {
            self.succeed_amid_failures();
        }
        self.exit_due_workers();
    }

    /// The decisive workers of a Job exit 0, and others of it fail before, with or after them.
    fn succeed_amid_failures(&mut self) {
        let names: Vec<&String> =
            self.api.jobs.iter().filter(|(_, it)| runs(it) && policy(it).is_some()).map(|it| it.0).collect();
        let Some(name) = pick(&mut self.extra, names.into_iter()) else { return };
        let found = &self.api.jobs[&name];
        let (Some(policy), uid) = (policy(found).cloned(), found.job.uid().unwrap_or_default()) else { return };
        let (mut succeeded, completions) = (found.completed.clone(), completions(found));
        let mut running: Vec<(i32, String)> = Vec::new();
        for (machine_uid, machine) in self.machines.iter().filter(|(_, it)| it.job_uid == uid && it.runs() && !it.lost)
        {
            running.push((machine.index, machine_uid.clone()));
        }
        running.sort();
        self.trace(|| format!("Job {name} is about to succeed, and others of its Pods fail"));
        for (index, uid) in running {
            let code = if rule_met(&policy, completions, &succeeded).is_none() {
                succeeded.insert(index);
                0
            } else if self.scenario.has_fatal_code && self.extra.u8(..12) == 0 {
                FATAL
            } else if self.extra.u8(..5) == 0 {
                continue;
            } else {
                CODES[self.extra.usize(..CODES.len())]
            };
            let at = self.clock + self.extra.i64(0..INCIDENT);
            self.due_exits.push(DueExit { at, uid, code });
        }
    }

    pub(super) fn exit_due_workers(&mut self) {
        let now = self.clock;
        let due: Vec<DueExit> = self.due_exits.extract_if(.., |exit| exit.at <= now).collect();
        let standing = if due.is_empty() { Vec::new() } else { self.standing_pods() };
        for DueExit { uid, code, .. } in due {
            let runs = |machine: &SimulatedMachine| machine.runs() && !machine.lost && standing.contains(&machine.pod);
            if self.machines.get(&uid).is_some_and(runs) {
                self.exit_worker(&uid, code);
            }
        }
    }

    /// A Pod has succeeded, and not because it was asked to go. The end of its worker, in milliseconds.
    pub(super) fn note_success(&mut self, uid: &str) {
        let Some(machine) = self.machines.get(uid) else { return };
        let has_succeeded = |pod: &PodObject| !is_going(pod) && pod.wire.status.phase == "Succeeded";
        if self.api.pods.get(&machine.pod).is_some_and(has_succeeded) {
            let (slot, at) = (machine.slot(), machine.ended_at().map_or(self.clock, Self::millis));
            self.truth.succeeded.entry(slot).or_insert(at);
        }
    }

    /// The Jobs whose success policy is met by the evaluation of the Job controller, as far as this controller has observed, and
    /// not by a worker that exited 0 because it was asked to go: its work is lost.
    /// A success that only Pods say counts for the time in which the Job controller says it, too.
    fn won_jobs(&self) -> BTreeSet<String> {
        let Some(seen) = Observed::of(&self.controller.engine.store, key()) else { return BTreeSet::new() };
        let mut of_pods: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
        for (job, pod) in seen.pods().on_nodes(|_| true) {
            if pod.phase == PodPhase::Succeeded {
                of_pods.entry(job).or_default().extend(pod.index);
            }
        }
        let has_won = |(name, view): &(&str, &JobView)| {
            let found = self.api.jobs.get(*name).filter(|found| found.job.metadata.uid.as_ref() == Some(&view.uid));
            let Some((found, policy)) = found.and_then(|found| Some((found, policy(found)?))) else { return false };
            let speaks = found.succeeding.as_ref().and_then(|met| met.version).is_some_and(|it| view.version >= it);
            let pods = of_pods.get(view.uid.as_str());
            let is_seen = |index: &i32| pods.is_some_and(|it| it.contains(index)) || view.completed.contains(*index);
            let indexes = places(completions(found), MOST_PODS).filter(|index| speaks || is_seen(index));
            let at = |index| self.truth.succeeded.get(&(view.uid.clone(), index)).map(|at| (*at, index));
            let mut truly: Vec<(i64, i32)> = indexes.filter_map(at).collect();
            truly.sort_unstable();
            let mut succeeded = BTreeSet::new();
            let decisive = truly.into_iter().find(|(_, index)| {
                succeeded.insert(*index);
                rule_met(policy, completions(found), &succeeded).is_some()
            });
            let is_soon = |(at, _)| !self.will_fail(found) && self.clock < at + SPEAKS_WITHIN;
            decisive.is_some_and(|last| speaks || is_soon(last))
        };
        seen.jobs().filter(has_won).map(|(_, view)| view.uid.clone()).collect()
    }

    /// Whether the Job controller fails the Job when it looks next.
    fn will_fail(&self, found: &JobObject) -> bool {
        let name = found.job.name_any();
        let uncounted = self.api.pods.values().filter(|pod| pod.job == name && has_ended(pod) && !pod.counted);
        let spec = found.job.spec.as_ref();
        let limit = spec.and_then(|spec| spec.backoff_limit).unwrap_or(i32::MAX);
        let failed = uncounted.clone().filter(|pod| pod.wire.status.phase == "Failed").count();
        found.failing.is_some()
            || found.is_late(self.now().0)
            || uncounted.clone().any(|pod| pod_fails_job(&found.job, pod))
            || i64::from(found.failures) + i64::try_from(failed).unwrap_or(i64::MAX) > i64::from(limit)
    }

    /// What the controller has decided restarts and fails nothing only because Pods of Jobs have failed that meet their success
    /// policy.
    pub(super) fn check_success_is_final(&self, base: &JobSet, decided: &JobSetStatus) -> CheckResult {
        let before = base.status.clone().unwrap_or_default();
        let failure = conditions::terminal(&decided.conditions)
            .filter(|it| before.terminal_state.is_empty() && it.type_ == conditions::FAILED);
        let restarts = decided.group_restarts > before.group_restarts || decided.restarts > before.restarts;
        let requested = Self::requested_restart(&before, decided).is_some() || Self::fails_on_request(&before, decided);
        if failure.is_none() && !restarts || requested {
            return Ok(());
        }
        let won = self.won_jobs();
        let by_job = self.failed_jobs(&before).any(|(_, action)| action != Some(FailurePolicyAction::FailJob));
        if won.is_empty() || by_job || self.deadline_has_passed(decided) || self.returns_or_grows(&before, &won) {
            return Ok(());
        }
        let is_other = |slot: &SlotId| !won.contains(&slot.0);
        let justified = match failure.map(|it| it.reason.as_str()) {
            Some(conditions::WORKER_NOT_STARTED) => self.truth.most_strikes_of(is_other) > base.spec.max_restarts(),
            Some(conditions::JOBS_LEFT_FAILED | conditions::FAILED_JOBS | conditions::FAIL_JOB_SET_ACTION) => true,
            // The restart has begun before. It has to be carried on unless nobody is left for it.
            None if decided.group_restarts == before.group_restarts => self
                .wanted_jobs(&before)
                .any(|(_, job)| job.is_none_or(|job| !won.contains(&job.job.uid().unwrap_or_default()))),
            _ => self.truth.was_struck_in_by(before.synced_epoch, is_other),
        };
        ensure(justified, Property::SuccessIsFinal, || {
            format!(
                "{won:?} meet their success policies, nothing else has failed, and then {}",
                super::controller::brief(decided)
            )
        })
    }

    /// Whether the JobSet is resumed or grows: what is done cannot come back in place then.
    fn returns_or_grows(&self, before: &JobSetStatus, won: &BTreeSet<String>) -> bool {
        let suspended = |it: &JobObject| it.job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
        self.api.jobs.values().any(suspended) || self.newcomers_have_arrived(before, |slot| !won.contains(&slot.0))
    }
}

fn policy(found: &JobObject) -> Option<&SuccessPolicy> {
    found.job.spec.as_ref()?.success_policy.as_ref()
}

fn completions(found: &JobObject) -> i32 {
    found.job.spec.as_ref().and_then(|spec| spec.completions).unwrap_or(1)
}

fn runs(found: &JobObject) -> bool {
    finished(&found.job).is_none() && !found.ends() && found.job.metadata.deletion_timestamp.is_none()
}
