//! A store with one JobSet, filled by watch events, and its reconciliation.

use std::sync::Arc;

use jobset_api::{JobSet, JobSetStatus};
use jobset_store::pods::PodView;
use jobset_store::{ControllerRef, JobView, Key, Kind, Observed, OwnedView, Store, View, WatchEvent};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::{Plan, Settings, plan};

/// One JobSet, its Jobs and its Service. Rules run at second 100.
pub(super) struct World {
    pub(super) store: Store,
    pub(super) settings: Settings,
    jobset: JobSet,
    key: Key,
}

impl World {
    pub(super) fn new(jobset: JobSet) -> Self {
        let key = Key::of(&jobset);
        let world = Self { store: Store::default(), settings: Settings::default(), jobset, key };
        let status = world.jobset.status.clone().unwrap_or_default();
        let mut world = world.with_status(status);
        let object = Key { name: world.jobset.subdomain().to_owned(), ..world.key.clone() };
        world.store.apply(WatchEvent::child(object, &world.key, View::Owned(Kind::Service, OwnedView::default())));
        world
    }

    /// Replaces the stored status.
    pub(super) fn with_status(mut self, status: JobSetStatus) -> Self {
        self.jobset.status = Some(status);
        self.store.apply(WatchEvent::jobset(Arc::new(self.jobset.clone())));
        self
    }

    /// Adds a Job. Without a controller of its own, the Job belongs to the JobSet. Without an index, it has the index of its
    /// name.
    pub(super) fn job(mut self, name: &str, job: JobView) -> Self {
        let own = ControllerRef {
            kind: "JobSet".to_owned(),
            name: self.key.name.clone(),
            uid: self.jobset.metadata.uid.clone().unwrap_or_default(),
        };
        let index = name.rsplit('-').next().and_then(|index| index.parse().ok());
        let controller = job.controller.clone().or(Some(own));
        let uid = if job.uid.is_empty() { format!("uid-of-{name}") } else { job.uid.clone() };
        let view = JobView { controller, uid, index: job.index.or(index), ..job };
        self.store.apply(WatchEvent::child(self.key.sibling(name), &self.key, View::Job(view)));
        self
    }

    pub(super) fn pod(mut self, pod: PodView) -> Self {
        let object = self.key.sibling(&pod.name);
        self.store.apply(WatchEvent::child(object, &self.key, View::Pod(pod)));
        self
    }

    /// Runs the rules once.
    pub(super) fn plan(&self) -> Plan {
        let now = Time(Timestamp::from_second(100).unwrap());
        plan(&Observed::of(&self.store, &self.key).unwrap(), &self.settings, &now)
    }
}
