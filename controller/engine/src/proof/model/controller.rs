//! The controller: the real memory of Pods and the real rules, over one JobSet with one Job.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use jobset_api::{JobSet, JobSetStatus, ReplicatedJobStatus, conditions, labels};
use jobset_rules::{Action, Plan, PodDeletion, Settings, plan};
use jobset_store::members::Members;
use jobset_store::pods::{Epoch, JobPods, PodFailure, PodProgress, PodView, StreamReports};
use jobset_store::{ControllerRef, JobView, Key, Observed, Ranges, Store};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::setting::{Mode, Setting};
use super::state::{Event, ModelController, ModelEnd, ModelState, ModelStatus, Pod, Shared};
use super::system::System;
use crate::proof::mutation::{edit_plan, edit_pod};
use crate::proof::{GroupStatus, ProgressWord, RuleMutation};

const JOB: &str = "train-workers-0";
const JOB_UID: &str = "job";
/// In seconds.
const NOW: i64 = 2;
const LATER: i64 = 3600;

static KEY: LazyLock<Key> = LazyLock::new(|| Key { namespace: "ml".to_owned(), name: "train".to_owned() });
static SETTINGS: LazyLock<Settings> = LazyLock::new(Settings::default);

/// What a reconciliation decides.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    pub status: ModelStatus,
    /// What `spec.suspend` of the Job shall be, if that shall change.
    suspend_job: Option<bool>,
    /// Slots whose Pods of these generations shall go; of some only if they still report an epoch above this one.
    delete: Vec<(usize, u8, Option<i32>)>,
    /// Whether it looks again after a time, although nothing may have happened.
    pub waits: bool,
}

impl Decided {
    /// Whether anything comes of it. A status that is made from another one than is stored is refused.
    pub(super) fn changes(&self, state: &ModelState, broken: Option<RuleMutation>) -> bool {
        let is_new = state.controller.observed == state.jobset.shown();
        is_new && self.status != state.jobset.status
            || self.suspend_job.is_some_and(|suspend| suspend != state.jobset.job_suspended)
            || self.deleted(state, broken).next().is_some()
    }

    /// Slots whose Pods are deleted, once that is confirmed by what the API server holds.
    fn deleted(
        &self,
        state: &ModelState,
        broken: Option<RuleMutation>,
    ) -> impl Iterator<Item = (usize, u8, Option<i32>)> {
        let is_new =
            state.controller.observed == state.jobset.shown() || broken == Some(RuleMutation::ConfirmedByPodsAlone);
        let deletes = move |(slot, generation, above): &&(usize, u8, Option<i32>)| {
            let pod =
                state.slots[*slot].pod.as_ref().filter(|pod| pod.going.is_none() && pod.generation == *generation);
            pod.is_some_and(|pod| above.is_none_or(|above| is_new && pod.epoch > Some(above)))
        };
        self.delete.iter().filter(deletes).copied()
    }
}

pub(super) fn jobset(setting: &Setting) -> JobSet {
    let pods = setting.pods;
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}]);
    let agent = json!({"name": "agent", "restartPolicy": "Always", "restartPolicyRules": rules});
    let (agents, worker) = match setting.mode {
        Mode::Sidecar => (json!([agent]), json!({"name": "worker"})),
        Mode::Supervisor => (
            json!([]),
            json!({"name": "worker", "command": ["/jobset-agent", "supervise", "--", "train"], "restartPolicyRules": rules}),
        ),
    };
    let pod = json!({"restartPolicy": "Never", "initContainers": agents, "containers": [worker]});
    let job = json!({"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": {"spec": pod}});
    let mut annotations = json!({(labels::RESTART_BUDGET): "Shared"});
    if setting.left.stalls > 0 {
        annotations[labels::STALL_AFTER] = json!("20s");
        annotations[labels::ON_STALL] = json!("Restart");
    }
    serde_json::from_value(json!({
        "metadata": {"name": KEY.name, "namespace": KEY.namespace, "uid": "u", "generation": 1,
                     "annotations": annotations},
        "spec": {
            "network": {"enableDNSHostnames": false},
            "failurePolicy": {"maxRestarts": setting.max_restarts, "restartStrategy": "InPlaceRestart"},
            "replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job}}],
        },
    }))
    .unwrap()
}

impl System {
    /// What a reconciliation of the observed state decides; `later`, after the time that it requeues after.
    pub(super) fn decide(&self, state: &ModelState, later: bool) -> Arc<Decided> {
        let mut hasher = DefaultHasher::new();
        (&state.controller.observed, state.jobset.job_suspended, later).hash(&mut hasher);
        state.slots.iter().for_each(|slot| slot.kept.hash(&mut hasher));
        let key = hasher.finish();
        let mut decided = self.decided.borrow_mut();
        decided.entry(key).or_insert_with(|| Arc::new(self.decide_anew(state, later))).clone()
    }

    fn decide_anew(&self, state: &ModelState, later: bool) -> Decided {
        let (observed, suspended) = state.controller.observed;
        let pods = i32::try_from(self.setting.pods).unwrap_or(i32::MAX);
        let mut jobset = JobSet::clone(&self.jobset);
        jobset.spec.suspend = Some(suspended);
        jobset.status = Some(stored(observed, pods));
        let job = JobView {
            uid: JOB_UID.to_owned(),
            controller: Some(ControllerRef { kind: "JobSet".to_owned(), name: KEY.name.clone(), uid: "u".to_owned() }),
            replicated_job: "workers".to_owned(),
            index: Some(0),
            attempt: Some(0),
            suspended: state.jobset.job_suspended,
            pods,
            parallelism: pods,
            completions: Some(pods),
            restarts_in_place: true,
            ..JobView::default()
        };
        let members = Members::of(jobset.status.as_ref().and_then(|status| status.replicated_jobs_status.first()));
        let kept = JobPods::of(state.slots.iter().map(|slot| &*slot.kept), observed.epochs(), members.of_job(0));
        let store = Store::with_pods(Arc::new(jobset), JOB, job, kept);
        let now = Time(Timestamp::from_second(if later { LATER } else { NOW }).unwrap());
        let observed = Observed::of(&store, &KEY).unwrap();
        let mut decided = plan(&observed, &SETTINGS, &now);
        edit_plan(self.setting.broken, &observed, &mut decided);
        read(&decided)
    }

    pub(super) fn reconcile(&self, state: &mut ModelState, later: bool) {
        let decided = self.decide(state, later);
        if let Some(suspend) = decided.suspend_job {
            state.jobset.job_suspended = suspend;
        }
        for (slot, _, above) in decided.deleted(state, self.setting.broken).collect::<Vec<_>>() {
            if above.is_some() {
                state.check_deletion(slot);
            }
            self.ask_to_go(state, slot);
        }
        if self.setting.broken == Some(RuleMutation::LiftSentBeforeWrite) {
            self.broadcast(state, decided.status.epochs());
        }
        if state.controller.observed != state.jobset.shown() || decided.status == state.jobset.status {
            return;
        }
        if self.setting.late.writes {
            state.controller.pending = Some(decided.status);
        } else {
            self.store(state, decided.status);
            self.broadcast(state, decided.status.epochs());
        }
    }

    /// The API server stores a status that was made from the one that it has.
    pub(super) fn store(&self, state: &mut ModelState, status: ModelStatus) {
        let before = state.jobset.status;
        state.jobset.status = status;
        state.check_write(before, &self.setting);
        if before.epochs() != status.epochs() {
            state.jobset.history.push((status.synced, status.deprecated));
            for slot in &mut state.slots {
                slot.change(|slot| {
                    let agent = slot.machine.as_mut().and_then(|machine| machine.agent.as_mut());
                    if let Some(agent) = agent.filter(|agent| agent.watches) {
                        agent.age += 1;
                    }
                });
            }
        }
        if status.synced > before.synced {
            state.note_lift();
        }
        self.outdate(state);
    }

    /// The controller sees the next event of this slot's Pods.
    pub(super) fn show_next(&self, state: &mut ModelState, slot: usize) {
        let epochs = state.known();
        let broken = self.setting.broken;
        state.slots[slot].change(|slot| {
            if slot.unseen.is_empty() {
                return;
            }
            slot.kept = Shared::new(match slot.unseen.remove(0) {
                Event::Put(pod) => {
                    let mut view = self.view(&pod);
                    edit_pod(broken, &mut view);
                    slot.reports.observe(&view);
                    slot.reports.overlay(&mut view, epochs);
                    slot.kept.apply(view, epochs)
                }
                Event::Gone(generation) => {
                    slot.reports.forget(&name(generation));
                    slot.kept.apply_gone(&name(generation), epochs)
                }
            });
        });
    }

    /// The Pod as the engine reduces it.
    fn view(&self, pod: &Pod) -> PodView {
        let mut failure = PodFailure::default();
        failure.disruption = pod.is_disrupted().then(|| ("EvictionByEvictionAPI".to_owned(), String::new()));
        let fails = pod.status.restarting || pod.has_failed() || pod.going.is_some();
        // Where workers stall, all have told of progress.
        let told = pod.progress.map(ProgressWord::text).and_then(|text| PodProgress::parse(&text));
        PodView {
            name: name(pod.generation),
            uid: name(pod.generation),
            epoch: pod.epoch.map_or(Epoch::Absent, Epoch::Reported),
            progress: (self.setting.left.stalls > 0).then(|| Box::new(told.unwrap_or_default())),
            deleted_at: pod.going.map(|_| Timestamp::UNIX_EPOCH),
            created: Timestamp::from_second(i64::from(pod.generation)).unwrap(),
            failure: fails.then(|| Box::new(failure)),
            ..pod.status.clone()
        }
    }

    /// The controller sees the newest version of the JobSet.
    pub(super) fn show_jobset(&self, state: &mut ModelState) {
        let before = state.known();
        state.controller.observed = state.jobset.shown();
        let after = state.known();
        if before != after {
            for slot in &mut state.slots {
                slot.change(|slot| {
                    slot.kept = Shared::new(slot.kept.turn(before, after));
                    for (_, uid) in slot.reports.counting_since(before, after) {
                        slot.raise(&uid, after);
                    }
                });
            }
            self.broadcast(state, state.controller.observed.0.epochs());
        }
    }

    /// Another controller begins, with nothing but what it lists.
    pub(super) fn crash(&self, state: &mut ModelState, pods_first: bool, write_arrives: bool) {
        if write_arrives {
            state.late = state.controller.pending;
        }
        let none = (ModelStatus::default(), state.jobset.suspended);
        state.controller = ModelController { observed: none, ..ModelController::default() };
        for slot in &mut state.slots {
            slot.change(|slot| {
                slot.kept = Shared::default();
                slot.reports = StreamReports::default();
                slot.unseen = slot.pod.clone().map(Box::new).map(Event::Put).into_iter().collect();
            });
        }
        if !pods_first {
            self.show_jobset(state);
        }
        for slot in 0..state.slots.len() {
            self.show_next(state, slot);
        }
        self.show_jobset(state);
    }
}

fn stored(status: ModelStatus, pods: i32) -> JobSetStatus {
    let members = if status.has_members { Ranges::below(pods.into()) } else { Ranges::default() };
    let workers = ReplicatedJobStatus {
        name: "workers".to_owned(),
        synced_pods: Some(members.to_string()),
        synced_parallelism: pods,
        ..ReplicatedJobStatus::default()
    };
    let end = Condition {
        type_: conditions::FAILED.to_owned(),
        status: "True".to_owned(),
        reason: conditions::REACHED_MAX_RESTARTS.to_owned(),
        message: String::new(),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    };
    JobSetStatus {
        synced_epoch: status.synced,
        deprecated_epoch: status.deprecated,
        free_epoch: status.free,
        restarts_count_towards_max: status.counted,
        group_restarts: status.restarts,
        conditions: status.end.map(|_| end).into_iter().collect(),
        replicated_jobs_status: vec![workers],
        // A status without it comes from the Go JobSet.
        jobs_ready: "0/1".to_owned(),
        ..JobSetStatus::default()
    }
}

fn read(plan: &Plan) -> Decided {
    let status = &plan.status;
    let end = conditions::terminal(&status.conditions).map(|end| match end.reason.as_str() {
        conditions::WORKER_NOT_STARTED => ModelEnd::Barrier,
        conditions::REACHED_MAX_RESTARTS => ModelEnd::Restarts,
        _ => ModelEnd::Other,
    });
    // Nobody has succeeded: nothing is ever to be recreated.
    let end = if status.restarts == 0 { end } else { Some(ModelEnd::Other) };
    let delete = |action: &Action| match action {
        Action::DeletePod { name, reason, .. } => {
            let above = if let PodDeletion::EpochAbove(epoch) = reason { Some(*epoch) } else { None };
            let (slot, generation) = name.split_once('-')?;
            Some((slot.parse().ok()?, generation.parse().ok()?, above))
        }
        _ => None,
    };
    let suspend = |action: &Action| match action {
        Action::SuspendJob { .. } => Some(true),
        Action::ResumeJob { .. } => Some(false),
        _ => None,
    };
    Decided {
        status: ModelStatus { group: GroupStatus::of(status), has_members: has_members(status), end },
        suspend_job: plan.actions.iter().find_map(suspend),
        delete: plan.actions.iter().filter_map(delete).collect(),
        waits: plan.requeue.is_some(),
    }
}

fn has_members(status: &JobSetStatus) -> bool {
    status.replicated_jobs_status.iter().any(|status| status.synced_pods.as_ref().is_some_and(|pods| !pods.is_empty()))
}

pub(super) fn name(generation: u8) -> String {
    generation.to_string()
}
