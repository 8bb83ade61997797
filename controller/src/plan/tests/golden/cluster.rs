//! What an API server would hold in a case, and the controller's store of it.

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
use super::{Objects, Step, defaults};
use crate::observe::Observed;
use crate::plan::{Plan, Settings, plan};
use crate::store::pods::PodView;
use crate::store::{
    Change, ClaimView, JobView, Key, NamespaceWire, RoleBindingView, Seen, ServiceView, Store, dialect,
};

/// Between two steps, where nothing else is said.
const STEP: SignedDuration = SignedDuration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    JobSet,
    Namespace,
    Node,
    Service,
    Claim,
    RoleBinding,
    Job,
    Pod,
}

pub(super) struct Cluster {
    store: Store,
    settings: Settings,
    now: Timestamp,
    version: u64,
    objects: BTreeMap<(Kind, String), Value>,
}

impl Default for Cluster {
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

impl Cluster {
    /// What the step shows, in the order JobSet, namespaces, nodes, Service, claims, RoleBindings, Jobs, Pods.
    pub(super) fn see(&mut self, step: Step, number: usize) {
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
    }

    /// The plan, its status as it is stored.
    pub(super) fn plan(&self) -> Plan {
        let key = key(defaults::JOBSET);
        let seen = Observed::of(&self.store, &key).unwrap();
        let mut plan = plan(&seen, &self.settings, &Time(self.now));
        if plan.status == seen.status() {
            plan.status = self.status();
        } else {
            plan.status = dialect::encode(plan.status, seen.report_attempts());
        }
        plan
    }

    pub(super) fn status(&self) -> JobSetStatus {
        self.jobset().status.unwrap_or_default()
    }

    /// Stores the status as a whole; one that is not new is not written.
    pub(super) fn store_status(&mut self, status: JobSetStatus) {
        if status != self.status() {
            let mut jobset = self.jobset();
            jobset.status = Some(status);
            self.objects.insert((Kind::JobSet, defaults::JOBSET.to_owned()), serde_json::to_value(jobset).unwrap());
            self.change(Kind::JobSet, defaults::JOBSET, json!({}));
        }
    }

    fn jobset(&self) -> JobSet {
        typed(&self.objects[&(Kind::JobSet, defaults::JOBSET.to_owned())])
    }

    fn change_all(&mut self, kind: Kind, objects: Objects) {
        for (name, patch) in objects {
            self.change(kind, &name, patch);
        }
    }

    /// Creates, changes or, with null, deletes an object, and lets the store see it.
    fn change(&mut self, kind: Kind, name: &str, patch: Value) {
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

    /// The object as it is when nothing is said about it.
    fn first(&self, kind: Kind, name: &str) -> Value {
        match kind {
            Kind::JobSet => defaults::jobset(),
            Kind::Job => defaults::job(&self.jobset(), name),
            Kind::Pod => {
                let is_its_job =
                    |(kind, job): &(Kind, String)| *kind == Kind::Job && name.starts_with(&format!("{job}-"));
                let job = self.objects.iter().find(|(place, _)| is_its_job(place));
                let (_, job) = job.unwrap_or_else(|| panic!("{name} has no Job"));
                defaults::pod(&self.jobset(), job, name, self.now)
            }
            Kind::Namespace | Kind::Node => json!({"metadata": {"name": name}}),
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

/// The object as the watches hand it to the store: of children, those that carry the label.
fn put(kind: Kind, object: Key, value: &Value) -> Seen {
    let label = value["metadata"]["labels"].get(labels::JOBSET_NAME).and_then(Value::as_str);
    let owner = label.map(key);
    match kind {
        Kind::JobSet => {
            Seen::JobSet(Change::Put { owner: Some(object.clone()), object, view: Arc::new(typed::<JobSet>(value)) })
        }
        Kind::Namespace => {
            Seen::Namespace(Change::Put { object, owner: None, view: Box::new(typed::<NamespaceWire>(value)) })
        }
        Kind::Node => Seen::Node(Change::Put { object, owner: None, view: Box::new(typed::<PartialNode>(value)) }),
        Kind::Service => Seen::Service(Change::Put { object, owner, view: ServiceView::of(&typed(value)) }),
        Kind::Claim => Seen::Claim(Change::Put { object, owner, view: ClaimView::of(&typed(value)) }),
        Kind::RoleBinding => Seen::RoleBinding(Change::Put { object, owner, view: RoleBindingView::of(&typed(value)) }),
        Kind::Job => Seen::Job(Change::Put { object, owner, view: JobView::of(&typed::<Job>(value)) }),
        Kind::Pod => Seen::Pod(Change::Put { object, owner, view: PodView::of(&typed::<PartialPod>(value)) }),
    }
}

fn gone(kind: Kind, object: Key, version: u64) -> Seen {
    match kind {
        Kind::JobSet => Seen::JobSet(Change::Gone(object, version)),
        Kind::Namespace => Seen::Namespace(Change::Gone(object, version)),
        Kind::Node => Seen::Node(Change::Gone(object, version)),
        Kind::Service => Seen::Service(Change::Gone(object, version)),
        Kind::Claim => Seen::Claim(Change::Gone(object, version)),
        Kind::RoleBinding => Seen::RoleBinding(Change::Gone(object, version)),
        Kind::Job => Seen::Job(Change::Gone(object, version)),
        Kind::Pod => Seen::Pod(Change::Gone(object, version)),
    }
}
