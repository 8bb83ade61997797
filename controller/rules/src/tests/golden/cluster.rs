//! The objects of a case in the API server, and the store that observes them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jobset_api::gates::Gates;
use jobset_api::{JobSet, JobSetStatus, LeaveCordoned, labels};
use jobset_objects::PartialJob;
use jobset_store::pods::PodView;
use jobset_store::{
    JobView, Key, Kind, Observed, OwnedView, PodWarning, Store, StreamAgents, View, WatchEvent, dialect,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::merge::merge;
use super::{CaseAgents, CaseWarning, ObjectPatches, Step, defaults};
use crate::{Plan, Settings, plan};

/// Default time between two steps.
const STEP: SignedDuration = SignedDuration::from_secs(60);

pub(super) struct CaseCluster {
    store: Store,
    settings: Settings,
    now: Timestamp,
    version: u64,
    /// Number of connections of Pods to relays, by their UIDs.
    connections: HashMap<Box<str>, u32>,
    missing_for: Duration,
    objects: BTreeMap<(Kind, String), Value>,
}

impl Default for CaseCluster {
    fn default() -> Self {
        Self {
            store: Store::default(),
            settings: Settings::default(),
            now: defaults::beginning(),
            version: 0,
            connections: HashMap::new(),
            missing_for: Duration::ZERO,
            objects: BTreeMap::new(),
        }
    }
}

impl CaseCluster {
    /// Applies the changes of a step, in the order JobSet, namespaces, nodes, Service, claims, RoleBindings, Jobs, Pods.
    pub(super) fn apply_step(&mut self, step: Step, number: usize) {
        let (first, later) = (number == 0, self.now.checked_add(STEP).unwrap());
        self.now = step.now.unwrap_or(if first { self.now } else { later });
        if let Some(settings) = step.settings {
            self.settings = Settings {
                gates: settings.feature_gates.parse::<Gates>().unwrap(),
                leave_cordoned: LeaveCordoned::parse(&settings.leave_cordoned).unwrap_or_default(),
                settle_names: Duration::from_secs(settings.settle_names),
                move_after_failures: settings.move_after_failures,
                ..Settings::default()
            };
        }
        if first || !step.jobset.is_null() {
            let patch = if step.jobset.is_null() { json!({}) } else { step.jobset };
            self.change(Kind::JobSet, defaults::JOBSET, patch);
        }
        self.change_all(Kind::Namespace, step.namespaces);
        self.change_all(Kind::Node, step.nodes);
        let service = first.then(|| Map::from_iter([(defaults::JOBSET.to_owned(), json!({}))]));
        self.change_all(Kind::Service, step.services.or(service).unwrap_or_default());
        self.change_all(Kind::Claim, step.claims);
        self.change_all(Kind::RoleBinding, step.role_bindings);
        self.change_all(Kind::Job, step.jobs);
        self.change_all(Kind::Pod, step.pods);
        if let Some(refused) = step.refused {
            self.store.set_refused(&key(defaults::JOBSET), refused);
        }
        if let Some(CaseWarning { pod, words }) = step.warned {
            let warning = PodWarning { uid: defaults::uid(&pod), pod, since: self.now, words };
            self.store.set_warning(&key(defaults::JOBSET), warning);
        }
        if let Some(CaseAgents { connected, missing_for }) = step.agents {
            self.connections = connected.iter().map(|pod| (defaults::uid(pod).into(), 1)).collect();
            self.missing_for = Duration::from_secs(missing_for);
        }
    }

    /// The plan, with its status in the stored form.
    pub(super) fn plan(&self) -> Plan {
        let key = key(defaults::JOBSET);
        let agents = StreamAgents { connections: Some(&self.connections), missing_for: self.missing_for };
        let observed = Observed::of(&self.store, &key).unwrap().with_agents(agents);
        let mut plan = plan(&observed, &self.settings, &Time(self.now));
        if plan.status == observed.status() {
            plan.status = self.status();
        } else {
            plan.status = dialect::encode(plan.status, observed.report_attempts());
        }
        plan
    }

    pub(super) fn status(&self) -> JobSetStatus {
        self.jobset().status.unwrap_or_default()
    }

    /// Stores the status if it has changed.
    pub(super) fn store_status(&mut self, status: JobSetStatus) {
        if status != self.status() {
            let mut jobset = self.jobset();
            jobset.status = Some(status);
            self.objects.insert((Kind::JobSet, defaults::JOBSET.to_owned()), serde_json::to_value(jobset).unwrap());
            self.change(Kind::JobSet, defaults::JOBSET, json!({}));
        }
    }

    pub(super) fn jobset(&self) -> JobSet {
        typed(&self.objects[&(Kind::JobSet, defaults::JOBSET.to_owned())])
    }

    fn change_all(&mut self, kind: Kind, objects: ObjectPatches) {
        for (name, patch) in objects {
            self.change(kind, &name, patch);
        }
    }

    /// Creates or changes an object, or deletes it if the patch is null, and sends the watch event to the store.
    fn change(&mut self, kind: Kind, name: &str, patch: Value) {
        self.version += 1;
        let place = (kind, name.to_owned());
        if patch.is_null() {
            self.objects.remove(&place).unwrap_or_else(|| panic!("{name} is not there"));
            self.store.apply(WatchEvent::Gone(kind, key(name), self.version));
            return;
        }
        let mut object = self.objects.remove(&place).unwrap_or_else(|| self.first(kind, name));
        let known = defaults::replicated_jobs(&object);
        merge(&mut object, patch);
        merge(&mut object, json!({"metadata": {"resourceVersion": self.version.to_string()}}));
        defaults::complete(&mut object, &known, self.now);
        self.store.apply(put(kind, key(name), &object));
        self.objects.insert(place, object);
    }

    /// The default object of this kind and name.
    fn first(&self, kind: Kind, name: &str) -> Value {
        match kind {
            Kind::JobSet => defaults::jobset(),
            Kind::Job => defaults::job(&self.jobset(), name),
            Kind::Pod => {
                let is_its_job =
                    |(kind, job): &(Kind, String)| *kind == Kind::Job && name.starts_with(&format!("{job}-"));
                // The Job controller cuts a long name.
                let begin = name.rsplitn(3, '-').nth(2).unwrap_or(name);
                let is_cut = |(kind, job): &(Kind, String)| *kind == Kind::Job && job.starts_with(begin);
                let mut jobs = self.objects.iter();
                let job =
                    jobs.clone().find(|(place, _)| is_its_job(place)).or_else(|| jobs.find(|(place, _)| is_cut(place)));
                let (_, job) = job.unwrap_or_else(|| panic!("{name} has no Job"));
                defaults::pod(&self.jobset(), job, name, self.now)
            }
            Kind::Namespace | Kind::Node | Kind::PriorityClass => json!({"metadata": {"name": name}}),
            Kind::Service | Kind::Claim => defaults::child(name),
            Kind::RoleBinding => {
                let mut binding = defaults::child(name);
                merge(&mut binding, json!({"roleRef": {"kind": "ClusterRole", "name": "jobset-agent"}}));
                binding
            }
        }
    }
}

fn key(name: &str) -> Key {
    Key { namespace: defaults::NAMESPACE.to_owned(), name: name.to_owned() }
}

fn typed<T: DeserializeOwned>(object: &Value) -> T {
    T::deserialize(object).unwrap_or_else(|error| panic!("{error}: {object:#}"))
}

/// The watch event of an object that exists. A child belongs to the JobSet in its label.
fn put(kind: Kind, object: Key, value: &Value) -> WatchEvent {
    let label = value["metadata"]["labels"].get(labels::JOBSET_NAME).and_then(Value::as_str);
    let (owner, view) = match kind {
        Kind::JobSet => (Some(object.clone()), View::JobSet(Arc::new(typed(value)))),
        Kind::Job => (label.map(key), View::Job(JobView::of(typed::<PartialJob>(value)))),
        Kind::Pod => (label.map(key), View::Pod(PodView::of(&typed(value)))),
        Kind::Service => (label.map(key), View::Owned(kind, OwnedView::of(&typed::<Service>(value)))),
        Kind::Claim => (label.map(key), View::Owned(kind, OwnedView::of(&typed::<PersistentVolumeClaim>(value)))),
        Kind::RoleBinding => (label.map(key), View::Owned(kind, OwnedView::of(&typed::<RoleBinding>(value)))),
        Kind::Node => (None, View::Node(Box::new(typed(value)))),
        Kind::Namespace => (None, View::Namespace(Box::new(typed(value)))),
        Kind::PriorityClass => (None, View::PriorityClass(Box::new(typed(value)))),
    };
    WatchEvent::Put { object, owner, view }
}
