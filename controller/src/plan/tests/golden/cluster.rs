//! The objects of a case in the API server, and the store of the controller that observes them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jobset_api::gates::Gates;
use jobset_api::{JobSet, JobSetStatus, labels};
use jobset_objects::{PartialNode, PartialPod};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::merge::merge;
use super::{ObjectPatches, Step, defaults};
use crate::observe::Observed;
use crate::plan::{Plan, Settings, plan};
use crate::store::pods::PodView;
use crate::store::{
    Change, ClaimView, JobView, Key, NamespaceWire, RoleBindingView, ServiceView, Store, WatchEvent, dialect,
};

/// Default time between two steps.
const STEP: SignedDuration = SignedDuration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ObjectKind {
    JobSet,
    Namespace,
    Node,
    Service,
    Claim,
    RoleBinding,
    Job,
    Pod,
}

pub(super) struct CaseCluster {
    store: Store,
    settings: Settings,
    now: Timestamp,
    version: u64,
    objects: BTreeMap<(ObjectKind, String), Value>,
}

impl Default for CaseCluster {
    fn default() -> Self {
        Self {
            store: Store::default(),
            settings: Settings::default(),
            now: defaults::beginning(),
            version: 0,
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
                force_delete_after: settings.force_delete_after.map(Duration::from_secs),
                ..Settings::default()
            };
        }
        if first || !step.jobset.is_null() {
            let patch = if step.jobset.is_null() { json!({}) } else { step.jobset };
            self.change(ObjectKind::JobSet, defaults::JOBSET, patch);
        }
        self.change_all(ObjectKind::Namespace, step.namespaces);
        self.change_all(ObjectKind::Node, step.nodes);
        let service = first.then(|| Map::from_iter([(defaults::JOBSET.to_owned(), json!({}))]));
        self.change_all(ObjectKind::Service, step.services.or(service).unwrap_or_default());
        self.change_all(ObjectKind::Claim, step.claims);
        self.change_all(ObjectKind::RoleBinding, step.role_bindings);
        self.change_all(ObjectKind::Job, step.jobs);
        self.change_all(ObjectKind::Pod, step.pods);
        if let Some(refused) = step.refused {
            self.store.set_refused(&key(defaults::JOBSET), refused);
        }
    }

    /// The plan, with its status in the stored form.
    pub(super) fn plan(&self) -> Plan {
        let key = key(defaults::JOBSET);
        let observed = Observed::of(&self.store, &key).unwrap();
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
            self.objects
                .insert((ObjectKind::JobSet, defaults::JOBSET.to_owned()), serde_json::to_value(jobset).unwrap());
            self.change(ObjectKind::JobSet, defaults::JOBSET, json!({}));
        }
    }

    fn jobset(&self) -> JobSet {
        typed(&self.objects[&(ObjectKind::JobSet, defaults::JOBSET.to_owned())])
    }

    fn change_all(&mut self, kind: ObjectKind, objects: ObjectPatches) {
        for (name, patch) in objects {
            self.change(kind, &name, patch);
        }
    }

    /// Creates or changes an object, or deletes it if the patch is null, and sends the watch event to the store.
    fn change(&mut self, kind: ObjectKind, name: &str, patch: Value) {
        self.version += 1;
        let place = (kind, name.to_owned());
        if patch.is_null() {
            self.objects.remove(&place).unwrap_or_else(|| panic!("{name} is not there"));
            self.store.see(gone(kind, key(name), self.version));
            return;
        }
        let mut object = self.objects.remove(&place).unwrap_or_else(|| self.first(kind, name));
        let known = defaults::replicated_jobs(&object);
        merge(&mut object, patch);
        merge(&mut object, json!({"metadata": {"resourceVersion": self.version.to_string()}}));
        defaults::complete(&mut object, &known, self.now);
        self.store.see(put(kind, key(name), &object));
        self.objects.insert(place, object);
    }

    /// The default object of this kind and name.
    fn first(&self, kind: ObjectKind, name: &str) -> Value {
        match kind {
            ObjectKind::JobSet => defaults::jobset(),
            ObjectKind::Job => defaults::job(&self.jobset(), name),
            ObjectKind::Pod => {
                let is_its_job = |(kind, job): &(ObjectKind, String)| {
                    *kind == ObjectKind::Job && name.starts_with(&format!("{job}-"))
                };
                let job = self.objects.iter().find(|(place, _)| is_its_job(place));
                let (_, job) = job.unwrap_or_else(|| panic!("{name} has no Job"));
                defaults::pod(&self.jobset(), job, name, self.now)
            }
            ObjectKind::Namespace | ObjectKind::Node => json!({"metadata": {"name": name}}),
            ObjectKind::Service | ObjectKind::Claim => defaults::child(name),
            ObjectKind::RoleBinding => {
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
fn put(kind: ObjectKind, object: Key, value: &Value) -> WatchEvent {
    let label = value["metadata"]["labels"].get(labels::JOBSET_NAME).and_then(Value::as_str);
    let owner = label.map(key);
    match kind {
        ObjectKind::JobSet => WatchEvent::JobSet(Change::Put {
            owner: Some(object.clone()),
            object,
            view: Arc::new(typed::<JobSet>(value)),
        }),
        ObjectKind::Namespace => {
            WatchEvent::Namespace(Change::Put { object, owner: None, view: Box::new(typed::<NamespaceWire>(value)) })
        }
        ObjectKind::Node => {
            WatchEvent::Node(Change::Put { object, owner: None, view: Box::new(typed::<PartialNode>(value)) })
        }
        ObjectKind::Service => WatchEvent::Service(Change::Put { object, owner, view: ServiceView::of(&typed(value)) }),
        ObjectKind::Claim => WatchEvent::Claim(Change::Put { object, owner, view: ClaimView::of(&typed(value)) }),
        ObjectKind::RoleBinding => {
            WatchEvent::RoleBinding(Change::Put { object, owner, view: RoleBindingView::of(&typed(value)) })
        }
        ObjectKind::Job => WatchEvent::Job(Change::Put { object, owner, view: JobView::of(&typed::<Job>(value)) }),
        ObjectKind::Pod => {
            WatchEvent::Pod(Change::Put { object, owner, view: PodView::of(&typed::<PartialPod>(value)) })
        }
    }
}

fn gone(kind: ObjectKind, object: Key, version: u64) -> WatchEvent {
    match kind {
        ObjectKind::JobSet => WatchEvent::JobSet(Change::Gone(object, version)),
        ObjectKind::Namespace => WatchEvent::Namespace(Change::Gone(object, version)),
        ObjectKind::Node => WatchEvent::Node(Change::Gone(object, version)),
        ObjectKind::Service => WatchEvent::Service(Change::Gone(object, version)),
        ObjectKind::Claim => WatchEvent::Claim(Change::Gone(object, version)),
        ObjectKind::RoleBinding => WatchEvent::RoleBinding(Change::Gone(object, version)),
        ObjectKind::Job => WatchEvent::Job(Change::Gone(object, version)),
        ObjectKind::Pod => WatchEvent::Pod(Change::Gone(object, version)),
    }
}
