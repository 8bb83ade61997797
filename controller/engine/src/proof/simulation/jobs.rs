//! The Job controller of Kubernetes, as far as JobSets see it: Pods by completion index, their ends counted, the Job
//! failed, completed or suspended, and what is deleted removed.

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus, SuccessPolicy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::api::{CriteriaMet, JobObject, PodObject};
use super::cluster::SimulatedCluster;
use super::extremes::MOST_PODS;
use super::machine::{DISRUPTION_TARGET, SimulatedMachine, has_ended, is_going};
use super::moves::Placement;
use super::scenario::{FATAL, NAMESPACE};
use super::successes::rule_met;

/// What the Job controller reads of a Job's specification.
#[allow(clippy::struct_excessive_bools)]
struct Wanted {
    uid: String,
    pods: i32,
    suspended: bool,
    backoff_limit: i32,
    fatal: bool,
    success_policy: Option<SuccessPolicy>,
    only_replaces_failed: bool,
}

impl SimulatedCluster {
    /// The Job controller reconciles one Job.
    pub(super) fn sync_job(&mut self, name: &str) {
        let Some(found) = self.api.jobs.get(name) else { return };
        let wanted = Wanted::of(&found.job);
        if found.job.metadata.deletion_timestamp.is_some() {
            self.collect_garbage(name);
            return;
        }
        self.count_ended(name, &wanted);
        let Time(now) = self.now();
        let Some(found) = self.api.jobs.get_mut(name).filter(|found| finished(&found.job).is_none()) else { return };
        found.completed.retain(|index| *index < wanted.pods);
        found.evaluate(&wanted, now);
        let done = i32::try_from(found.completed.range(..wanted.pods).count()).unwrap_or(i32::MAX);
        if found.ends() || done >= wanted.pods || wanted.suspended {
            self.delete_pods(name, |_| true);
        } else {
            if found.keeps_until <= self.clock {
                self.delete_pods(name, |pod| pod.index >= wanted.pods);
            }
            self.create_pods(name, &wanted);
        }
        self.write_job_status(name, &wanted, done);
    }

    /// Ends are counted, and the finalizers that wait for that come off.
    fn count_ended(&mut self, name: &str, wanted: &Wanted) {
        let gives_up = |pod: &PodObject| !wanted.only_replaces_failed && is_going(pod);
        for pod_name in self.pods_of(name, |pod| !pod.counted && (has_ended(pod) || gives_up(pod))) {
            let Some(pod) = self.api.pods.get_mut(&pod_name) else { continue };
            pod.counted = true;
            let (index, fatal) = (pod.index, wanted.fatal && exit_code(pod) == Some(FATAL));
            let succeeded = pod.wire.status.phase == "Succeeded";
            let asked = is_going(pod) && pod.wire.condition(DISRUPTION_TARGET).is_none();
            let Some(found) = self.api.jobs.get_mut(name) else { continue };
            if succeeded {
                // Indexes beyond the size of the Job are not counted.
                found.completed.extend((index < wanted.pods).then_some(index));
            } else if fatal && !found.ends() {
                let message = format!(
                    "Container worker for pod {NAMESPACE}/{pod_name} failed with exit code {FATAL} matching FailJob rule \
                     at index 0"
                );
                found.failing = Some(("PodFailurePolicy".to_owned(), message));
            } else if !wanted.suspended && !asked && index < wanted.pods {
                found.failures += 1;
                if found.failures > wanted.backoff_limit && !found.ends() {
                    let message = "Job has reached the specified backoff limit".to_owned();
                    found.failing = Some(("BackoffLimitExceeded".to_owned(), message));
                }
            }
            self.worked = true;
            self.reap(&pod_name);
        }
    }

    /// Some Jobs have a deadline from the begin.
    pub(super) fn draw_deadline(&mut self, job: &mut Job) {
        if self.extra.u8(..4) == 0 {
            job.spec.get_or_insert_default().active_deadline_seconds = Some(self.extra.i64(20..240));
        }
    }

    fn delete_pods(&mut self, name: &str, which: impl Fn(&PodObject) -> bool) {
        for pod in self.pods_of(name, |pod| !is_going(pod) && !has_ended(pod) && which(pod)) {
            self.delete_own_pod(&pod);
        }
    }

    /// Names of some of the Job's Pods.
    fn pods_of(&self, job: &str, which: impl Fn(&PodObject) -> bool) -> Vec<String> {
        let pods = self.api.pods.iter().filter(|(_, pod)| pod.job == job && which(pod));
        pods.map(|(name, _)| name.clone()).collect()
    }

    /// Deletes a Pod on behalf of its Job or of the controller: no failure.
    pub(super) fn delete_own_pod(&mut self, pod: &str) {
        self.trace(|| format!("{pod} is asked to go"));
        self.truth.asked_to_go(self.machine_of(pod).and_then(|machine| machine.epoch));
        let now = self.now();
        self.api.delete_pod(pod, &now);
        self.worked = true;
    }

    fn create_pods(&mut self, name: &str, wanted: &Wanted) {
        for index in 0..wanted.pods.min(MOST_PODS) {
            let Some(found) = self.api.jobs.get(name) else { return };
            if found.completed.contains(&index) {
                continue;
            }
            let mut pods = self.api.pods.values().filter(|pod| pod.job == name && pod.index == index);
            let holds = |pod: &PodObject| {
                !has_ended(pod) && (wanted.only_replaces_failed || !is_going(pod)) || !pod.counted && has_ended(pod)
            };
            if pods.any(holds) {
                continue;
            }
            let (job, now) = (found.job.clone(), self.now());
            let drawn = self.rng.u8(..3);
            let Placement { node, finds_none } = self.place(&job, drawn);
            let node = self.beside_cordons(node);
            self.restart_dead_node(&node);
            self.set_ready(&node, true);
            let pod = self.api.create_pod(&job, index, &node, &now);
            self.trace(|| format!("{pod} is created on {node}"));
            let mut machine = SimulatedMachine::new(&pod, &self.api.pods[&pod], &wanted.uid);
            machine.waits_for_node = finds_none.is_some() || self.is_full && !self.has_place(name, index);
            if machine.waits_for_node {
                self.trace(|| format!("{pod} finds no node"));
            }
            self.machines.insert(format!("uid-of-{pod}"), machine);
            if let Some(form) = finds_none {
                self.show_unschedulable(&pod, form);
            }
            self.worked = true;
        }
    }

    fn write_job_status(&mut self, name: &str, wanted: &Wanted, done: i32) {
        let now = self.now();
        let open = || self.api.pods.values().filter(|pod| pod.job == name && !has_ended(pod));
        let active = count(open().filter(|pod| !is_going(pod)));
        let ready = count(open().filter(|pod| !is_going(pod) && is_ready(pod)));
        let is_quiet = open().next().is_none();
        let Some(found) = self.api.jobs.get(name) else { return };
        let before = found.job.status.clone().unwrap_or_default();
        let mut conditions = before.conditions.clone().unwrap_or_default();
        set(&mut conditions, "Suspended", wanted.suspended, "JobSuspended", "", &now);
        let (failing, met) = (found.failing.clone(), found.succeeding.clone());
        if let Some((reason, message)) = &failing {
            set(&mut conditions, "FailureTarget", true, reason, message, &now);
        }
        if let Some(met) = &met {
            set(&mut conditions, "SuccessCriteriaMet", true, "SuccessPolicy", &met.message, &now);
        }
        let ends_as = match (failing, met) {
            _ if !is_quiet => None,
            (Some((reason, message)), _) => Some(("Failed", reason, message)),
            (None, Some(met)) => Some(("Complete", "SuccessPolicy".to_owned(), met.message)),
            (None, None) if done >= wanted.pods => Some(("Complete", String::new(), String::new())),
            (None, None) => None,
        };
        if let Some((type_, reason, message)) = &ends_as {
            set(&mut conditions, type_, true, reason, message, &now);
        }
        let indexes: Vec<String> = found.completed.range(..wanted.pods).map(ToString::to_string).collect();
        let status = JobStatus {
            active: Some(active),
            ready: Some(ready),
            succeeded: Some(done),
            failed: Some(found.failures),
            completed_indexes: Some(indexes.join(",")),
            conditions: Some(conditions),
            start_time: (!wanted.suspended).then_some(Time(found.started)),
            ..JobStatus::default()
        };
        if status == before {
            return;
        }
        if let Some((type_, reason, _)) = &ends_as {
            self.trace(|| format!("Job {name} is {type_} {reason}"));
            if *type_ == "Failed" {
                self.truth.job_failed(&found.job, reason);
            }
        }
        let version = self.api.change_job(name, &wanted.uid, |job| job.status = Some(status));
        let met = self.api.jobs.get_mut(name).and_then(|found| found.succeeding.as_mut());
        if let Some(met) = met.filter(|met| met.version.is_none()) {
            met.version = Some(version);
            self.trace(|| format!("Job {name} meets its success policy"));
        }
        self.worked = true;
    }

    /// Foreground deletion: the Pods go first, then the Job.
    fn collect_garbage(&mut self, name: &str) {
        let keeps = self.api.jobs.get(name).is_some_and(|found| found.keeps_until > self.clock);
        for pod in &self.pods_of(name, |_| true) {
            if !keeps && !is_going(&self.api.pods[pod]) {
                self.delete_own_pod(pod);
            }
            if let Some(pod) = self.api.pods.get_mut(pod) {
                pod.counted = true;
            }
            self.reap(pod);
        }
        if !self.api.pods.values().any(|pod| pod.job == name) {
            self.trace(|| format!("Job {name} is gone"));
            self.api.remove_job(name);
            self.worked = true;
        }
    }

    /// The controller removes the finalizer that waits for the count.
    pub(super) fn release(&mut self, name: &str, uid: &str) {
        if let Some(pod) = self.api.pods.get_mut(name).filter(|pod| pod.wire.metadata.uid.as_deref() == Some(uid)) {
            pod.counted = true;
            self.worked = true;
            self.reap(name);
        }
    }

    /// A Pod that was asked to go, has ended and was counted is removed.
    pub(super) fn reap(&mut self, name: &str) {
        if self.api.pods.get(name).is_some_and(|pod| is_going(pod) && has_ended(pod) && pod.counted) {
            self.trace(|| format!("{name} is gone"));
            self.api.remove_pod(name);
            self.worked = true;
        }
    }
}

impl JobObject {
    /// Whether it is decided how the Job ends.
    pub(super) fn ends(&self) -> bool {
        self.failing.is_some() || self.succeeding.is_some()
    }

    /// Whether its deadline has passed.
    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        let spec = self.job.spec.as_ref().filter(|spec| spec.suspend != Some(true));
        let deadline = spec.and_then(|spec| spec.active_deadline_seconds);
        deadline.is_some_and(|seconds| now >= self.started + SignedDuration::from_secs(seconds))
    }

    /// Decides how the Job ends once its Pods were counted, in the order of the Job controller: rules and limits that fail it
    /// come before its deadline, and its success policy comes last.
    fn evaluate(&mut self, wanted: &Wanted, now: Timestamp) {
        if !self.ends() && self.is_late(now) {
            let message = "Job was active longer than specified deadline".to_owned();
            self.failing = Some(("DeadlineExceeded".to_owned(), message));
        }
        if !self.ends()
            && let Some(policy) = &wanted.success_policy
        {
            let rule = rule_met(policy, wanted.pods, &self.completed);
            let message = |rule| format!("Matched rules at index {rule}");
            self.succeeding = rule.map(|rule| CriteriaMet { message: message(rule), version: None });
        }
    }
}

impl Wanted {
    fn of(job: &Job) -> Self {
        let spec = job.spec.as_ref();
        Self {
            uid: job.uid().unwrap_or_default(),
            pods: spec.and_then(|spec| spec.completions).unwrap_or(1),
            suspended: spec.and_then(|spec| spec.suspend).unwrap_or(false),
            backoff_limit: spec.and_then(|spec| spec.backoff_limit).unwrap_or(6),
            fatal: spec.is_some_and(|spec| spec.pod_failure_policy.is_some()),
            success_policy: spec.and_then(|spec| spec.success_policy.clone()),
            only_replaces_failed: spec.and_then(|spec| spec.pod_replacement_policy.as_deref()) == Some("Failed"),
        }
    }
}

/// How the Job has ended: whether well.
pub(super) fn finished(job: &Job) -> Option<bool> {
    let conditions = job.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().filter(|it| it.status == "True").find_map(|it| match it.type_.as_str() {
        "Complete" => Some(true),
        "Failed" => Some(false),
        _ => None,
    })
}

fn set(conditions: &mut Vec<JobCondition>, type_: &str, is: bool, reason: &str, message: &str, now: &Time) {
    let status = if is { "True" } else { "False" };
    match conditions.iter_mut().find(|it| it.type_ == type_) {
        Some(known) if known.status == status => {}
        Some(known) => (known.status, known.last_transition_time) = (status.to_owned(), Some(now.clone())),
        None if is => conditions.push(JobCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(now.clone()),
            ..JobCondition::default()
        }),
        None => {}
    }
}

/// Whether a podFailurePolicy of the Job fails it because of this Pod.
pub(super) fn pod_fails_job(job: &Job, pod: &PodObject) -> bool {
    job.spec.as_ref().is_some_and(|spec| spec.pod_failure_policy.is_some()) && exit_code(pod) == Some(FATAL)
}

fn exit_code(pod: &PodObject) -> Option<i32> {
    Some(pod.wire.status.container_statuses.first()?.state.terminated.as_ref()?.exit_code)
}

fn is_ready(pod: &PodObject) -> bool {
    pod.wire.status.container_statuses.iter().any(|it| it.state.running.is_some())
}

fn count<'a>(pods: impl Iterator<Item = &'a PodObject>) -> i32 {
    i32::try_from(pods.count()).unwrap_or(i32::MAX)
}
