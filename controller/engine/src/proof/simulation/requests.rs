//! The requests of the controller, as the simulated API server carries them out.

use std::sync::Arc;

use jobset_rules::{Action, ENDED_JOB_DEADLINE, PodDeletion, build};
use jobset_store::{Kind, Versions};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::cluster::SimulatedCluster;
use super::controller::WorkUnderWay;
use crate::proof::CheckResult;
use crate::{Failure, Request, RequestError};

impl SimulatedCluster {
    /// A request of a former controller may shrink a Job that is to grow again: what goes then is taken for failed.
    pub(super) fn note_shrink(&mut self, action: &Action) {
        let Action::ResizeJob { name, parallelism, .. } = action else { return };
        let goes = self
            .machines
            .values()
            .filter(|it| it.index >= *parallelism && self.api.pods.get(&it.pod).is_some_and(|pod| pod.job == *name));
        let struck: Vec<_> = goes.map(|it| (it.slot(), it.epoch)).collect();
        for (slot, epoch) in struck {
            self.truth.struck(slot, epoch, false);
        }
    }

    /// What has to hold of a request when it is sent.
    pub(super) fn check_request(&self, action: &Action, work: &WorkUnderWay) -> CheckResult {
        self.check_action(action)?;
        self.check_replacement(action)?;
        self.check_move(action, &work.base)?;
        self.check_loss(action, &work.base)?;
        Self::check_no_start(action, &work.base)
    }

    fn check_action(&self, action: &Action) -> CheckResult {
        match action {
            Action::ResizeJob { name, parallelism, .. } => self.check_shrink(name, *parallelism),
            Action::DeleteJob { name, .. } => self.check_shrink(name, 0),
            _ => Ok(()),
        }
    }

    pub(super) fn carry_out(&mut self, action: Action, work: &mut WorkUnderWay) {
        let now = self.now();
        let request = Request::of(&action);
        self.trace(|| format!("request: {}", name(&action)));
        if let Action::CreateJob(job) = &action
            && let Some(error) = self.quota_error(&job.name)
        {
            work.failures.push((request, error));
            return;
        }
        let (base, written) = (Arc::clone(&work.base), &mut work.written);
        let jobs = match action {
            Action::CreateJob(job) => {
                let mut job = self.with_success_policy(build::job(&base, &job));
                self.draw_deadline(&mut job);
                self.pin(&mut job);
                self.api.create_job(job, &now)
            }
            Action::DeleteJob { name, uid } => {
                self.keep_leaving(&name);
                self.api.delete_job(&name, &uid, &now)
            }
            Action::SuspendJob { name, uid } => self.api.change_job(&name, &uid, |job| set_suspend(job, true)),
            Action::EndJob { name, uid } => self.api.change_job(&name, &uid, |job| {
                job.spec.get_or_insert_default().active_deadline_seconds = Some(ENDED_JOB_DEADLINE);
            }),
            Action::ResumeJob { uid, desired, .. } => {
                let Some(version) = self.resume_job(&uid, &build::job(&base, &desired)) else {
                    work.failures.push((request, RequestError { failure: Failure::Outdated, note: None }));
                    return;
                };
                version
            }
            Action::ResizeJob { name, uid, parallelism, completions } => {
                self.keep_leaving(&name);
                self.api.change_job(&name, &uid, |job| {
                    let spec = job.spec.get_or_insert_default();
                    spec.parallelism = Some(parallelism);
                    spec.completions = completions.or(spec.completions);
                })
            }
            Action::CreateService { .. } => {
                written.raise(Versions::of(Kind::Service, self.api.create_service()));
                0
            }
            Action::DeletePod { name, uid, reason: PodDeletion::NodeLost } => {
                self.give_up_pod(&name, &uid);
                0
            }
            Action::DeletePod { reason, .. } if needs_same_jobset(reason) && !self.is_up_to_date(&base) => 0,
            Action::DeletePod { name, uid, .. } => {
                if self.api.pods.get(&name).is_some_and(|pod| pod.wire.metadata.uid == Some(uid)) {
                    self.delete_own_pod(&name);
                }
                0
            }
            Action::ReleasePod { name, uid } => {
                self.release(&name, &uid);
                0
            }
            Action::AnnotateRestartBudget(budget) => {
                written.raise(Versions::of(Kind::JobSet, self.api.annotate_budget(&base, budget)));
                0
            }
            // Nothing is refused to the Job controller, and nobody is warned.
            Action::FindRefusal { .. } | Action::FindWarning { .. } => {
                work.provided.push(request);
                return;
            }
            Action::CreateClaim { .. }
            | Action::CreateRoleBinding { .. }
            | Action::DeleteJobSet
            | Action::DisableInPlaceRestart(_) => 0,
        };
        written.raise(Versions::of(Kind::Job, jobs));
        work.accepted.insert(request);
    }

    /// Returns the version of the resumed Job; 0 if it is gone. The template of a Job that is not at rest cannot change, and the
    /// request is refused then.
    fn resume_job(&mut self, uid: &str, desired: &Job) -> Option<u64> {
        let (name, template) = (desired.name_any(), |job: &Job| job.spec.as_ref().map(|spec| spec.template.clone()));
        let Some(found) = self.api.jobs.get(&name) else { return Some(0) };
        let rests = found.job.status.as_ref().is_none_or(|status| status.active.unwrap_or(0) == 0);
        if !rests && template(&found.job) != template(desired) {
            self.trace(|| format!("{name} is not at rest"));
            return None;
        }
        let Time(now) = self.now();
        if let Some(found) = self.api.jobs.get_mut(&name).filter(|it| it.job.metadata.uid.as_deref() == Some(uid)) {
            found.started = now;
        }
        Some(self.api.change_job(&name, uid, |job| {
            if let (Some(spec), Some(template)) = (&mut job.spec, template(desired)) {
                spec.template = template;
            }
            set_suspend(job, false);
        }))
    }
}

/// Whether the Pod is deleted only if the JobSet is as it was when this was decided.
fn needs_same_jobset(reason: PodDeletion) -> bool {
    matches!(reason, PodDeletion::LeavesCordoned | PodDeletion::Moved | PodDeletion::Unschedulable)
}

fn set_suspend(job: &mut Job, suspend: bool) {
    job.spec.get_or_insert_default().suspend = Some(suspend);
}

pub(super) fn name(action: &Action) -> String {
    match action {
        Action::CreateJob(job) => format!("create {}", job.name),
        Action::DeleteJob { name, .. } => format!("delete {name}"),
        Action::SuspendJob { name, .. } => format!("suspend {name}"),
        Action::EndJob { name, .. } => format!("end {name}"),
        Action::ResumeJob { desired, .. } => format!("resume {}", desired.name),
        Action::ResizeJob { name, parallelism, .. } => format!("resize {name} to {parallelism}"),
        Action::DeletePod { name, reason, .. } => format!("delete {name}: {reason:?}"),
        other => format!("{other:?}").chars().take(30).collect(),
    }
}
