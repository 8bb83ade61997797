//! The API server: objects, their versions and UIDs, and the events that it sends to the controller's watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jobset_agent::decide::JobSetState;
use jobset_api::{JobSet, JobSetStatus, RestartBudget, RestartStrategy, labels};
use jobset_objects::PartialPod;
use jobset_store::pods::PodView;
use jobset_store::{JobView, Key, Kind, OwnedView, View, WatchEvent};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::scenario::{NAMESPACE, UID, key};
use super::watches::{KINDS, Watches};

/// How long a Pod that is asked to go may take, in seconds.
const GRACE: i64 = 30;

/// A Job, and what the Job controller keeps of it beside its status.
#[derive(Debug)]
pub(super) struct JobObject {
    pub job: Job,
    /// Reason and message of the failure that is under way: the Pods have to end first.
    pub failing: Option<(String, String)>,
    /// The success that is under way: the success policy is met, and the other Pods have to end first.
    pub succeeding: Option<CriteriaMet>,
    /// When it started, or was resumed: its deadline counts from there.
    pub started: Timestamp,
    /// Until when its Pods live on that it is to lose, in milliseconds.
    pub keeps_until: i64,
    pub completed: BTreeSet<i32>,
    pub failures: i32,
}

/// The success policy of a Job is met.
#[derive(Clone, Debug)]
pub(super) struct CriteriaMet {
    pub message: String,
    /// The version of the Job that says so, once it is written.
    pub version: Option<u64>,
}

#[derive(Debug)]
pub(super) struct PodObject {
    pub wire: PartialPod,
    pub job: String,
    pub index: i32,
    /// Whether the Job controller has counted its end, and taken its finalizer off.
    pub counted: bool,
}

/// The status was not written: another version of the JobSet is stored than the one it was made from.
pub(super) struct Conflict;

#[derive(Debug)]
pub(super) struct ApiServer {
    version: u64,
    pub jobset: Arc<JobSet>,
    /// The version before the last that changed the epochs.
    pub earlier: Option<Arc<JobSet>>,
    /// What the agents' watches show, from the beginning.
    pub states: Vec<JobSetState>,
    pub jobs: BTreeMap<String, JobObject>,
    pub pods: BTreeMap<String, PodObject>,
    service: Option<u64>,
    /// Objects of other tenants, as they are shown.
    others: BTreeMap<(Kind, String), WatchEvent>,
    pub watches: Watches,
}

impl ApiServer {
    pub(super) fn new(jobset: JobSet) -> Self {
        let mut api = Self {
            version: 0,
            jobset: Arc::default(),
            earlier: None,
            states: Vec::new(),
            jobs: BTreeMap::new(),
            pods: BTreeMap::new(),
            service: None,
            others: BTreeMap::new(),
            watches: Watches::default(),
        };
        api.put_jobset(jobset);
        for kind in KINDS {
            api.list(kind);
        }
        api
    }

    pub(super) fn status(&self) -> JobSetStatus {
        self.jobset.status.clone().unwrap_or_default()
    }

    pub(super) fn synced(&self) -> i32 {
        self.jobset.status.as_ref().map_or(0, |status| status.synced_epoch)
    }

    /// The user changes the specification.
    pub(super) fn edit(&mut self, edit: impl FnOnce(&mut JobSet)) {
        let mut jobset = JobSet::clone(&self.jobset);
        edit(&mut jobset);
        jobset.metadata.generation = jobset.metadata.generation.map(|generation| generation + 1);
        self.put_jobset(jobset);
    }

    /// The controller writes the status against the version that it has observed.
    pub(super) fn write_status(&mut self, base: &JobSet, status: JobSetStatus) -> Result<u64, Conflict> {
        if base.metadata.resource_version != self.jobset.metadata.resource_version {
            return Err(Conflict);
        }
        self.put_jobset(JobSet { status: Some(status), ..JobSet::clone(&self.jobset) });
        Ok(self.version)
    }

    /// The controller annotates the version that it has observed. The version then; 0 if another one is stored.
    pub(super) fn annotate_budget(&mut self, base: &JobSet, budget: RestartBudget) -> u64 {
        if base.metadata.resource_version != self.jobset.metadata.resource_version {
            return 0;
        }
        let mut jobset = JobSet::clone(&self.jobset);
        let annotation = (labels::RESTART_BUDGET.to_owned(), budget.word().to_owned());
        jobset.metadata.annotations.get_or_insert_default().extend([annotation]);
        self.put_jobset(jobset);
        self.version
    }

    fn put_jobset(&mut self, mut jobset: JobSet) {
        jobset.metadata.resource_version = Some(self.next_version());
        let status = jobset.status.clone().unwrap_or_default();
        let state = JobSetState {
            uid: UID.to_owned(),
            synced: status.synced_epoch,
            deprecated: status.deprecated_epoch,
            failed: status.terminal_state == "Failed",
            bypass: jobset.spec.restart_strategy() != RestartStrategy::InPlaceRestart,
        };
        let before = self.states.last();
        if before.is_some_and(|it| (it.synced, it.deprecated) != (state.synced, state.deprecated)) {
            self.earlier = Some(Arc::clone(&self.jobset));
        }
        self.states.push(state);
        self.jobset = Arc::new(jobset);
        self.watches.send(Kind::JobSet, WatchEvent::jobset(self.jobset.clone()));
    }

    /// Creates a Job; one of its name that is there stays. The version of what is there then.
    pub(super) fn create_job(&mut self, mut job: Job, now: &Time) -> u64 {
        let name = job.name_any();
        if let Some(found) = self.jobs.get(&name) {
            return jobset_store::version(&found.job);
        }
        job.metadata.uid = Some(format!("{name}-{}", self.version + 1));
        job.metadata.creation_timestamp = Some(now.clone());
        let found = JobObject {
            job,
            failing: None,
            succeeding: None,
            started: now.0,
            keeps_until: 0,
            completed: BTreeSet::new(),
            failures: 0,
        };
        self.jobs.insert(name.clone(), found);
        self.show_job(&name)
    }

    /// Writes this Job again, if it is the one of that UID. Its version then; 0 if it is gone.
    pub(super) fn change_job(&mut self, name: &str, uid: &str, change: impl FnOnce(&mut Job)) -> u64 {
        let Some(found) = self.jobs.get_mut(name).filter(|it| it.job.metadata.uid.as_deref() == Some(uid)) else {
            return 0;
        };
        change(&mut found.job);
        self.show_job(name)
    }

    /// The Job goes, its Pods before it.
    pub(super) fn delete_job(&mut self, name: &str, uid: &str, now: &Time) -> u64 {
        self.change_job(name, uid, |job| {
            job.metadata.deletion_timestamp.get_or_insert_with(|| now.clone());
        })
    }

    pub(super) fn remove_job(&mut self, name: &str) {
        self.jobs.remove(name);
        let version = self.bump();
        self.watches.send(Kind::Job, WatchEvent::Gone(Kind::Job, child(name), version));
    }

    fn show_job(&mut self, name: &str) -> u64 {
        let version = self.next_version();
        let Some(found) = self.jobs.get_mut(name) else { return 0 };
        found.job.metadata.resource_version = Some(version);
        self.watches.send(Kind::Job, shown_job(&found.job));
        self.version
    }

    /// The Job controller creates a Pod.
    pub(super) fn create_pod(&mut self, job: &Job, index: i32, node: &str, now: &Time) -> String {
        let job_name = job.name_any();
        let name = format!("{job_name}-{index}-{:05}", self.version + 1);
        let annotations = [(labels::COMPLETION_INDEX.to_owned(), index.to_string())];
        let owner = OwnerReference {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            name: job_name.clone(),
            uid: job.uid().unwrap_or_default(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let mut wire = PartialPod {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(NAMESPACE.to_owned()),
                uid: Some(format!("uid-of-{name}")),
                annotations: Some(annotations.into()),
                owner_references: Some(vec![owner]),
                creation_timestamp: Some(now.clone()),
                ..ObjectMeta::default()
            },
            ..PartialPod::default()
        };
        super::machine::specify(&mut wire.spec, job);
        wire.spec.node_name = Some(node.to_owned());
        self.pods.insert(name.clone(), PodObject { wire, job: job_name, index, counted: false });
        self.change_pod(&name, |_| {});
        name
    }

    pub(super) fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut PartialPod)) {
        let version = self.next_version();
        let Some(pod) = self.pods.get_mut(name) else { return };
        change(&mut pod.wire);
        pod.wire.metadata.resource_version = Some(version);
        self.watches.send(Kind::Pod, shown_pod(&pod.wire));
    }

    /// Somebody asks the Pod to go.
    pub(super) fn delete_pod(&mut self, name: &str, now: &Time) {
        let end = now.0.checked_add(SignedDuration::from_secs(GRACE)).unwrap_or(now.0);
        self.change_pod(name, |pod| {
            pod.metadata.deletion_timestamp.get_or_insert(Time(end));
            pod.metadata.deletion_grace_period_seconds.get_or_insert(GRACE);
        });
    }

    pub(super) fn remove_pod(&mut self, name: &str) {
        self.pods.remove(name);
        let version = self.bump();
        self.watches.send(Kind::Pod, WatchEvent::Gone(Kind::Pod, child(name), version));
    }

    pub(super) fn create_service(&mut self) -> u64 {
        let version = self.bump();
        self.service = Some(version);
        self.watches.send(Kind::Service, shown_service(version));
        version
    }

    /// A watch of the controller begins again.
    pub(super) fn list(&mut self, kind: Kind) {
        let objects = self.listed(kind);
        self.watches.begin_anew(kind, objects);
    }

    /// The objects of a kind.
    pub(super) fn listed(&self, kind: Kind) -> Vec<WatchEvent> {
        let mut listed: Vec<WatchEvent> = match kind {
            Kind::JobSet => vec![WatchEvent::jobset(self.jobset.clone())],
            Kind::Job => self.jobs.values().map(|it| shown_job(&it.job)).collect(),
            Kind::Pod => self.pods.values().map(|it| shown_pod(&it.wire)).collect(),
            _ => self.service.map(shown_service).into_iter().collect(),
        };
        let others = self.others.iter().filter(|((of_kind, _), _)| *of_kind == kind);
        listed.extend(others.map(|(_, event)| event.clone()));
        listed
    }

    /// Stores an object of another tenant, and shows it. Its version then.
    pub(super) fn put_other(&mut self, object: Key, owner: &Key, view: impl FnOnce(String) -> View) -> u64 {
        let view = view(self.next_version());
        let (place, event) = ((view.kind(), object.name.clone()), WatchEvent::child(object, owner, view));
        self.watches.send(place.0, event.clone());
        self.others.insert(place, event);
        self.version
    }

    fn bump(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn next_version(&mut self) -> String {
        self.bump().to_string()
    }
}

pub(super) fn child(name: &str) -> Key {
    Key { name: name.to_owned(), ..key().clone() }
}

fn shown_job(job: &Job) -> WatchEvent {
    WatchEvent::child(Key::of(job), key(), View::Job(JobView::of(job)))
}

fn shown_pod(pod: &PartialPod) -> WatchEvent {
    WatchEvent::child(Key::of(pod), key(), View::Pod(PodView::of(pod)))
}

fn shown_service(version: u64) -> WatchEvent {
    let view = OwnedView { version, ..OwnedView::default() };
    WatchEvent::child(key().clone(), key(), View::Owned(Kind::Service, view))
}
