//! What watches show, kind by kind, and how it gets into the store.

use std::collections::HashSet;
use std::sync::Arc;

use jobset_api::JobSet;
use jobset_objects::PartialNode;
use k8s_openapi::api::scheduling::v1::PriorityClass;

use super::pods::{Extent, ObservedEpochs, PodView};
use super::verdict::SpecVerdict;
use super::{
    Children, ClaimView, JobView, Key, NamespaceWire, PriorityClasses, RoleBindingView, ServiceView, Store,
    Terminating, Versioned, dialect,
};

/// Something was seen.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum WatchEvent {
    JobSet(Change<Arc<JobSet>>),
    Job(Change<JobView>),
    Pod(Change<PodView>),
    Service(Change<ServiceView>),
    Claim(Change<ClaimView>),
    RoleBinding(Change<RoleBindingView>),
    Node(Change<Box<PartialNode>>),
    Namespace(Change<Box<NamespaceWire>>),
    PriorityClass(Change<Box<PriorityClass>>),
}

/// An event of a watch, its object reduced to what the store keeps.
#[derive(Debug)]
pub enum Change<V> {
    /// The object is there.
    Put {
        /// Name of the object.
        object: Key,
        /// The JobSet that it belongs to. Without one it is none of ours.
        owner: Option<Key>,
        /// What the store keeps of it.
        view: V,
    },
    /// The object is gone, as of this version.
    Gone(Key, u64),
    /// A listing of all objects begins.
    ListingBegins,
    /// The listing has ended.
    ListingEnded,
}

impl Store {
    /// Puts what was seen into the store; the JobSets to look at come out.
    pub fn see(&mut self, seen: WatchEvent) -> Vec<Key> {
        match seen {
            WatchEvent::JobSet(change) => self.see_jobset(change),
            WatchEvent::Job(change) => self.see_job(change),
            WatchEvent::Pod(change) => self.see_pod(change),
            WatchEvent::Service(change) => self.see_service(change),
            WatchEvent::Claim(change) => put(&mut self.claims, change),
            WatchEvent::RoleBinding(change) => put(&mut self.role_bindings, change),
            WatchEvent::Node(change) => self.see_node(change),
            WatchEvent::Namespace(change) => self.see_namespace(change),
            WatchEvent::PriorityClass(change) => {
                self.see_class(change);
                Vec::new()
            }
        }
    }

    fn see_jobset(&mut self, mut change: Change<Arc<JobSet>>) -> Vec<Key> {
        if let Change::Put { view, .. } = &mut change
            && let Some(status) = &mut Arc::make_mut(view).status
        {
            dialect::decode(status);
        }
        let marked = put(&mut self.jobsets, change);
        for key in &marked {
            let Some(jobset) = self.jobsets.map_of(key).and_then(|jobsets| jobsets.values().next()) else {
                self.pods.forget(key);
                self.verdicts.remove(key);
                self.refused.remove(key);
                continue;
            };
            let status = jobset.status.as_ref();
            let epochs = status
                .map(|status| ObservedEpochs { synced: status.synced_epoch, deprecated: status.deprecated_epoch });
            self.pods.set_epochs(key, epochs.unwrap_or_default());
            if !self.verdicts.get(key).is_some_and(|verdict| verdict.is_on(jobset)) {
                self.verdicts.insert(key.clone(), SpecVerdict::of(jobset));
            }
        }
        marked
    }

    fn see_job(&mut self, change: Change<JobView>) -> Vec<Key> {
        let object = match &change {
            Change::Put { object, .. } | Change::Gone(object, _) => Some(object.clone()),
            Change::ListingBegins => None,
            Change::ListingEnded => return self.end_listing_of_jobs(),
        };
        let before = object
            .as_ref()
            .and_then(|object| self.jobs.find(object))
            .map(|(owner, job)| (owner.clone(), job.uid.clone()));
        let marked = put(&mut self.jobs, change);
        let now = object.as_ref().and_then(|object| self.jobs.find(object));
        // A Job may follow another of its name.
        if let Some((owner, uid)) = before
            && now.is_none_or(|now| (now.0, &now.1.uid) != (&owner, &uid))
        {
            self.pods.forget_job(&owner, &uid);
        }
        if let Some((owner, job)) = now {
            let extent = Extent { size: job.pods, completed: job.completed.clone() };
            self.pods.set_extent(owner, &job.uid, extent);
        }
        marked
    }

    fn end_listing_of_jobs(&mut self) -> Vec<Key> {
        let jobs = |store: &Self| -> HashSet<(Key, String)> {
            store.jobs.all().map(|(owner, job)| (owner.clone(), job.uid.clone())).collect()
        };
        let before = jobs(self);
        let marked = self.jobs.end_listing();
        for (owner, uid) in before.difference(&jobs(self)) {
            self.pods.forget_job(owner, uid);
        }
        marked
    }

    fn see_pod(&mut self, change: Change<PodView>) -> Vec<Key> {
        match change {
            Change::Put { object, owner, view } => {
                let mut marked = self.forget_stray(&object);
                match owner {
                    Some(owner) if view.job_uid.is_some() => marked.extend(self.pods.apply(object, owner, view)),
                    Some(owner) => {
                        marked.extend(self.pods.delete(&object));
                        self.strays.entry(owner.clone()).or_default().insert(object.name);
                        marked.push(owner);
                    }
                    None => marked.extend(self.pods.delete(&object)),
                }
                marked
            }
            Change::Gone(object, _) => {
                let mut marked = self.forget_stray(&object);
                marked.extend(self.pods.delete(&object));
                marked
            }
            Change::ListingBegins => {
                self.strays.clear();
                self.pods.begin_listing();
                Vec::new()
            }
            Change::ListingEnded => self.pods.end_listing(),
        }
    }

    /// The Pod may be a Job's by now: the Job controller adopts. Strays are few, mostly none.
    fn forget_stray(&mut self, pod: &Key) -> Vec<Key> {
        let mut marked = Vec::new();
        self.strays.retain(|owner, names| {
            if owner.namespace == pod.namespace && names.remove(&pod.name) {
                marked.push(owner.clone());
            }
            !names.is_empty()
        });
        marked
    }

    fn see_service(&mut self, change: Change<ServiceView>) -> Vec<Key> {
        let gone = match &change {
            Change::Gone(service, _) => Some(service.clone()),
            _ => None,
        };
        let mut marked = put(&mut self.services, change);
        // JobSets may share one Service, which only one of them owns.
        if let Some(service) = gone {
            let shares = |jobset: &Arc<JobSet>| {
                jobset.subdomain() == service.name && jobset.metadata.namespace.as_ref() == Some(&service.namespace)
            };
            marked.extend(self.jobsets.all().filter(|(_, jobset)| shares(jobset)).map(|(key, _)| key.clone()));
        }
        marked
    }

    /// What exists keeps its priority; what is created from now on gets the new one.
    fn see_class(&mut self, change: Change<Box<PriorityClass>>) {
        match change {
            Change::Put { view, .. } => self.listed_classes.as_mut().unwrap_or(&mut self.classes).apply(&view),
            Change::Gone(object, _) => self.classes.delete(&object.name),
            Change::ListingBegins => self.listed_classes = Some(PriorityClasses::default()),
            Change::ListingEnded => self.classes = self.listed_classes.take().unwrap_or_default(),
        }
    }

    fn see_namespace(&mut self, change: Change<Box<NamespaceWire>>) -> Vec<Key> {
        match change {
            Change::Put { object, view, .. } => {
                let terminating = self.listed_terminating.as_mut().unwrap_or(&mut self.terminating);
                if !terminating.apply(&view) {
                    return Vec::new();
                }
                self.keys().filter(|key| key.namespace == object.name).collect()
            }
            Change::Gone(object, _) => {
                self.terminating.delete(&object.name);
                Vec::new()
            }
            Change::ListingBegins => {
                self.listed_terminating = Some(Terminating::default());
                Vec::new()
            }
            Change::ListingEnded => {
                self.terminating = self.listed_terminating.take().unwrap_or_default();
                self.keys().filter(|key| self.terminating.contains(&key.namespace)).collect()
            }
        }
    }

    /// Keys of all JobSets.
    fn keys(&self) -> impl Iterator<Item = Key> {
        self.jobsets.all().map(|(key, _)| key.clone())
    }

    fn see_node(&mut self, change: Change<Box<PartialNode>>) -> Vec<Key> {
        let outdated = self.nodes.all_outdated();
        let mut marked = self.see_node_of_pods(change);
        // What is said of a cluster in which no node can restart in place concerns also those that have no Pod yet.
        if self.nodes.all_outdated() != outdated {
            marked = self.keys().collect();
        }
        marked
    }

    fn see_node_of_pods(&mut self, change: Change<Box<PartialNode>>) -> Vec<Key> {
        let changed: Vec<Arc<str>> = match change {
            Change::Put { object, view, .. } => {
                let changed = self.nodes.apply(&view);
                changed.then(|| object.name.into()).into_iter().collect()
            }
            Change::Gone(object, _) => {
                self.nodes.delete(&object.name);
                vec![object.name.into()]
            }
            Change::ListingBegins => {
                self.nodes.begin_listing();
                Vec::new()
            }
            Change::ListingEnded => self.nodes.end_listing(),
        };
        let mut marked: Vec<Key> =
            changed.iter().flat_map(|node| self.pods.on_node(node)).map(|(_, jobset)| jobset.clone()).collect();
        marked.sort_unstable();
        marked.dedup();
        marked
    }
}

fn put<V: Versioned>(children: &mut Children<V>, change: Change<V>) -> Vec<Key> {
    match change {
        Change::Put { object, owner: Some(owner), view } => children.apply(object, owner, view),
        Change::Put { object, owner: None, view } => children.delete(&object, view.version()),
        Change::Gone(object, version) => children.delete(&object, version),
        Change::ListingBegins => {
            children.begin_listing();
            Vec::new()
        }
        Change::ListingEnded => children.end_listing(),
    }
}
