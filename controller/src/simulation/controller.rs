//! The controller: the real store and the real rules, driven as `shell::reconcile` and `shell::apply` drive them, one
//! request at a time, so that it can crash between any two.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jobset_api::{JobSet, JobSetStatus};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::broken::{RuleMutation, edit_plan, edit_seen};
use super::cluster::{Checked, SimulatedCluster};
use super::properties::{SimulationProperty, SimulationViolation};
use super::scenario::key;
use super::shown::Shown;
use super::watches::{KINDS, WatchedKind};
use crate::observe::Observed;
use crate::plan::{Action, Note, Plan, Settings, plan};
use crate::store::{Store, Versions};

/// How long a pass waits to see what the one before wrote, in milliseconds.
const CATCH_UP: i64 = 5_000;
/// How long a request that was refused is not made again.
const POSTPONED: SignedDuration = SignedDuration::from_secs(2);
/// Passes in which the controller has to come to rest while nothing else moves.
const PASSES_TO_REST: usize = 12;

/// One life of the controller.
#[derive(Debug, Default)]
pub(super) struct SimulatedController {
    pub store: Store,
    pub shown: Shown,
    listed: [bool; KINDS.len()],
    dirty: bool,
    due: Option<Timestamp>,
    awaited: Option<(Versions, i64)>,
    /// Jobs whose resumption was refused, and until when it is not asked for again.
    postponed: BTreeMap<String, i64>,
    pub pass: Option<PassUnderWay>,
}

/// A pass whose requests are being made.
#[derive(Debug)]
pub(super) struct PassUnderWay {
    base: Arc<JobSet>,
    actions: VecDeque<Action>,
    status: JobSetStatus,
    due: Option<Timestamp>,
    written: Versions,
    /// What is wrong with it, if it is not refused as outdated.
    doubt: Option<SimulationViolation>,
}

impl SimulatedController {
    /// Whether it has nothing to do until something happens.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        self.pass.is_none() && !self.dirty && self.due.is_none_or(|due| now < due)
    }
}

impl SimulatedCluster {
    /// The next event of one stream arrives.
    pub(super) fn deliver(&mut self, kind: WatchedKind) -> Checked {
        let Some(seen) = self.api.watches.receive(kind) else { return Ok(()) };
        let controller = &mut self.controller;
        let ended = controller.shown.note(&seen);
        controller.listed[kind as usize] |= ended;
        self.worked = true;
        let Some(seen) = edit_seen(self.broken, seen) else { return Ok(()) };
        controller.dirty |= !controller.store.see(seen).is_empty();
        if kind == WatchedKind::Pods { self.check_counts() } else { Ok(()) }
    }

    pub(super) fn deliver_all(&mut self) -> Checked {
        for kind in KINDS {
            while self.api.watches.has(kind) {
                self.deliver(kind)?;
            }
        }
        Ok(())
    }

    /// The rules are applied to what was seen, if that is due.
    pub(super) fn start_pass(&mut self) -> Checked {
        let now = self.now();
        let controller = &mut self.controller;
        let idle = controller.is_idle(now.0);
        if idle || controller.pass.is_some() || !controller.listed.iter().all(|listed| *listed) {
            return Ok(());
        }
        if controller.awaited.is_some_and(|(written, until)| self.clock < until && !controller.store.has_seen(written))
        {
            return Ok(());
        }
        (controller.awaited, controller.dirty, controller.due) = (None, false, None);
        let Some((base, decided)) = self.decide(&now) else { return Ok(()) };
        self.check_counts_of_jobs(&base, &decided.status)?;
        let doubt = self.check_announcement(&base, &decided.status).err();
        let Plan { status, actions, requeue, .. } = decided;
        let actions = actions.into();
        self.controller.pass =
            Some(PassUnderWay { base, actions, status, due: requeue, written: Versions::default(), doubt });
        self.worked = true;
        Ok(())
    }

    fn decide(&self, now: &Time) -> Option<(Arc<JobSet>, Plan)> {
        let seen = Observed::of(&self.controller.store, key())?;
        let mut decided = plan(&seen, &Settings::default(), now);
        edit_plan(self.broken, &seen, &mut decided);
        let until = |action: &Action| match action {
            Action::ResumeJob { desired, .. } => self.controller.postponed.get(&desired.name_any()).copied(),
            _ => None,
        };
        let waits = |action: &Action| until(action).is_some_and(|until| self.clock < until);
        if decided.actions.iter().any(waits) {
            decided.actions.retain(|action| !waits(action));
            decided.requeue = now.0.checked_add(POSTPONED).ok();
        }
        Some((seen.jobset.clone(), decided))
    }

    /// The next request of the pass that is under way: an action, or at last the status.
    pub(super) fn continue_pass(&mut self) -> Checked {
        let Some(mut pass) = self.controller.pass.take() else { return Ok(()) };
        self.worked = true;
        if let Some(action) = pass.actions.pop_front() {
            self.carry_out(action, &pass.base, &mut pass.written);
            self.controller.pass = Some(pass);
            return Ok(());
        }
        let stored = self.write_status(&mut pass)?;
        let controller = &mut self.controller;
        if !controller.store.has_seen(pass.written) {
            controller.awaited = Some((pass.written, self.clock + CATCH_UP));
        }
        controller.due = pass.due;
        // A conflict is looked at again after a moment, if not sooner.
        controller.dirty |= !stored;
        Ok(())
    }

    /// Whether the status is as the pass has it; not if another one was stored in between.
    fn write_status(&mut self, pass: &mut PassUnderWay) -> Result<bool, SimulationViolation> {
        if pass.base.status.clone().unwrap_or_default() == pass.status {
            return Ok(true);
        }
        let before = self.api.status();
        let base = if self.broken == Some(RuleMutation::ConflictsIgnored) {
            self.api.jobset.clone()
        } else {
            pass.base.clone()
        };
        let Ok(version) = self.api.write_status(&base, pass.status.clone()) else {
            self.trace(|| "the status conflicts".to_owned());
            return Ok(false);
        };
        pass.written.jobsets = version;
        let status = &pass.status;
        self.trace(|| format!("status: {}", brief(status)));
        self.check_write(&before, &pass.status)?;
        pass.doubt.take().map_or(Ok(true), Err)
    }

    fn carry_out(&mut self, action: Action, base: &JobSet, written: &mut Versions) {
        let now = self.now();
        self.trace(|| format!("request: {}", name(&action)));
        let jobs = match action {
            Action::CreateJob(job) => self.api.create_job(*job, &now),
            Action::DeleteJob { name, uid } => self.api.delete_job(&name, &uid, &now),
            Action::SuspendJob { name, uid } => self.api.change_job(&name, &uid, |job| set_suspend(job, true)),
            Action::ResumeJob { uid, desired } => self.resume_job(&uid, &desired),
            Action::ResizeJob { name, uid, parallelism, completions } => self.api.change_job(&name, &uid, |job| {
                let spec = job.spec.get_or_insert_default();
                spec.parallelism = Some(parallelism);
                spec.completions = completions.or(spec.completions);
            }),
            Action::CreateService(_) => {
                written.services = written.services.max(self.api.create_service());
                0
            }
            Action::DeletePod { name, uid, .. } => {
                if self.api.pods.get(&name).is_some_and(|pod| pod.wire.metadata.uid == Some(uid)) {
                    self.delete_own_pod(&name);
                }
                0
            }
            Action::AnnotateRestartBudget(budget) => {
                written.jobsets = written.jobsets.max(self.api.annotate_budget(base, budget));
                0
            }
            Action::CreateClaim(_)
            | Action::CreateRoleBinding(_)
            | Action::DeleteJobSet
            | Action::DisableInPlaceRestart(_) => 0,
        };
        written.jobs = written.jobs.max(jobs);
    }

    /// The template of a Job that is not at rest cannot change, and the request is refused then.
    fn resume_job(&mut self, uid: &str, desired: &Job) -> u64 {
        let (name, template) = (desired.name_any(), |job: &Job| job.spec.as_ref().map(|spec| spec.template.clone()));
        let Some(found) = self.api.jobs.get(&name) else { return 0 };
        let rests = found.job.status.as_ref().is_none_or(|status| status.active.unwrap_or(0) == 0);
        if !rests && template(&found.job) != template(desired) {
            self.trace(|| format!("{name} is not at rest"));
            let until = self.clock + i64::try_from(POSTPONED.as_millis()).unwrap_or(i64::MAX);
            self.controller.postponed.insert(name, until);
            self.controller.dirty = true;
            return 0;
        }
        self.api.change_job(&name, uid, |job| {
            if let (Some(spec), Some(template)) = (&mut job.spec, template(desired)) {
                spec.template = template;
            }
            set_suspend(job, false);
        })
    }

    /// The controller begins anew, with nothing but what it lists.
    pub(super) fn crash(&mut self) {
        self.trace(|| "the controller crashes".to_owned());
        self.controller = SimulatedController::default();
        for kind in KINDS {
            self.api.list(kind);
        }
    }

    /// It crashes, and requests that it has sent arrive after its successor has begun.
    pub(super) fn race(&mut self) -> Checked {
        self.start_pass()?;
        self.late = self.controller.pass.take().or(self.late.take());
        self.crash();
        Ok(())
    }

    /// A request of the former controller arrives.
    pub(super) fn arrive_late(&mut self) -> Checked {
        let Some(mut late) = self.late.take() else { return Ok(()) };
        if let Some(action) = late.actions.pop_front() {
            self.trace(|| "of the former controller:".to_owned());
            self.carry_out(action, &late.base, &mut late.written);
            self.late = Some(late);
            return Ok(());
        }
        self.write_status(&mut late).map(|_| ())
    }

    /// While nothing else moves, the controller comes to rest, and then has nothing more to say.
    pub(super) fn check_rest(&mut self) -> Checked {
        let mut last = String::new();
        for _ in 0..PASSES_TO_REST {
            while self.controller.pass.is_some() {
                self.continue_pass()?;
            }
            self.deliver_all()?;
            let now = self.now();
            let Some((base, decided)) = self.decide(&now) else { return Ok(()) };
            if decided.actions.is_empty() && base.status.clone().unwrap_or_default() == decided.status {
                let told: Vec<&Note> = decided.notes.iter().collect();
                if told.is_empty() {
                    return Ok(());
                }
                return Err(SimulationViolation::new(
                    SimulationProperty::Rest,
                    format!("nothing changes, and it says {told:?}"),
                ));
            }
            last = format!("{} {:?}", brief(&decided.status), decided.actions.iter().map(name).collect::<Vec<_>>());
            (self.controller.dirty, self.controller.awaited) = (true, None);
            self.start_pass()?;
        }
        Err(SimulationViolation::new(SimulationProperty::Rest, format!("it never comes to rest: {last}")))
    }
}

fn set_suspend(job: &mut Job, suspend: bool) {
    job.spec.get_or_insert_default().suspend = Some(suspend);
}

fn name(action: &Action) -> String {
    match action {
        Action::CreateJob(job) => format!("create {}", job.name_any()),
        Action::DeleteJob { name, .. } => format!("delete {name}"),
        Action::SuspendJob { name, .. } => format!("suspend {name}"),
        Action::ResumeJob { desired, .. } => format!("resume {}", desired.name_any()),
        Action::ResizeJob { name, parallelism, .. } => format!("resize {name} to {parallelism}"),
        Action::DeletePod { name, reason, .. } => format!("delete {name}: {reason:?}"),
        other => format!("{other:?}").chars().take(30).collect(),
    }
}

/// The parts of a status that the properties are about.
pub(super) fn brief(status: &JobSetStatus) -> String {
    let JobSetStatus { synced_epoch, deprecated_epoch, free_epoch, restarts, group_restarts, terminal_state, .. } =
        status;
    let counted = status.restarts_count_towards_max;
    let true_ = status.conditions.iter().filter(|it| it.status == "True");
    let true_: Vec<String> = true_.map(|it| format!("{}: {}", it.reason, it.message)).collect();
    let groups: Vec<String> = status
        .replicated_jobs_status
        .iter()
        .map(|it| {
            let alone = (&it.job_restarts, it.restarts);
            format!(
                "{} active {} ready {} succeeded {} failed {} suspended {} restarts {alone:?}",
                it.name, it.active, it.ready, it.succeeded, it.failed, it.suspended
            )
        })
        .collect();
    format!(
        "S {synced_epoch} D {deprecated_epoch} free {free_epoch}, restarts {restarts}, of the group {group_restarts}, \
         counted {counted} {terminal_state} {true_:?} {groups:?}"
    )
}
