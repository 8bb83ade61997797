//! The observed state of one JobSet and its children in the store, for one reconciliation.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jobset_api::gates::Gates;
use jobset_api::{JobSet, JobSetStatus, RestartStrategy, labels};

use crate::store::pods::{GroupPods, JobPods, PodView};
use crate::store::{ClaimView, JobView, Key, NodeView, PriorityClasses, RoleBindingView, Store};

/// The observed state of one JobSet. A view into the store without copies.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The JobSet.
    pub jobset: &'a Arc<JobSet>,
    key: &'a Key,
    store: &'a Store,
}

static NO_JOBS: BTreeMap<String, JobView> = BTreeMap::new();

impl<'a> Observed<'a> {
    /// Finds the JobSet in the store; `None` if the store does not have it.
    pub fn of(store: &'a Store, key: &'a Key) -> Option<Self> {
        Some(Self { jobset: store.jobset(key)?, key, store })
    }

    /// The stored status, decoded by the store; empty before the first write.
    pub fn status(&self) -> JobSetStatus {
        self.jobset.status.clone().unwrap_or_default()
    }

    /// The Jobs that the JobSet controls, of all attempts, by name.
    pub fn jobs(&self) -> impl Iterator<Item = (&'a str, &'a JobView)> + use<'a> {
        let observed = *self;
        self.labelled_jobs().filter(move |(_, job)| observed.owns(job))
    }

    /// Jobs that carry the label of the JobSet but are not controlled by it, by name.
    pub fn foreign_jobs(&self) -> impl Iterator<Item = (&'a str, &'a JobView)> + use<'a> {
        let observed = *self;
        self.labelled_jobs().filter(move |(_, job)| !observed.owns(job))
    }

    fn labelled_jobs(&self) -> impl Iterator<Item = (&'a str, &'a JobView)> + use<'a> {
        let jobs = self.store.jobs.map_of(self.key).unwrap_or(&NO_JOBS);
        jobs.iter().map(|(name, job)| (name.as_str(), job))
    }

    /// Names of Pods that carry the label of the JobSet and that no Job controls.
    pub fn orphan_pods(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.store.strays(self.key)
    }

    /// The Job of this name, if it carries the label of the JobSet. Its controller may be this JobSet or another object, such
    /// as a deleted JobSet of the same name.
    pub fn job(&self, name: &str) -> Option<&'a JobView> {
        self.store.jobs.map_of(self.key)?.get(name)
    }

    /// Whether the JobSet controls the Job.
    pub fn owns(&self, job: &JobView) -> bool {
        let uid = self.jobset.metadata.uid.as_ref();
        uid.is_some() && job.controller.as_ref().map(|owner| &owner.uid) == uid
    }

    /// Why the specification is invalid, if it is.
    pub fn invalid(&self) -> Option<&'a str> {
        self.store.findings(self.key)?.invalid.as_deref()
    }

    /// Why the specification does not allow in-place restart although it requests it, if so.
    pub fn not_in_place(&self) -> Option<&'a str> {
        self.store.findings(self.key)?.not_in_place.as_deref()
    }

    /// Whether the annotation is set by which the controller disables in-place restart of a JobSet.
    pub fn is_in_place_restart_disabled(&self) -> bool {
        let mut annotations = self.jobset.metadata.annotations.iter().flatten();
        annotations.any(|(key, _)| key == labels::DISABLE_IN_PLACE_RESTART)
    }

    /// The restart strategy in effect: the specified one, or Recreate instead of InPlaceRestart if the feature gate is off, the
    /// specification does not allow in-place restart, or the annotation disables it.
    pub fn strategy(&self, gates: Gates) -> RestartStrategy {
        let in_place = gates.in_place_restart && self.not_in_place().is_none() && !self.is_in_place_restart_disabled();
        match self.jobset.spec.restart_strategy() {
            RestartStrategy::InPlaceRestart if !in_place => RestartStrategy::Recreate,
            strategy => strategy,
        }
    }

    /// Which message patterns of the failure policy can never match, if any.
    pub fn unmatchable(&self) -> Option<&'a str> {
        self.store.findings(self.key)?.unmatchable.as_deref()
    }

    /// The refused requests of the JobSet, each with its reason; `None` before the controller has sent any.
    pub fn refused(&self) -> Option<&'a [String]> {
        self.store.refused(self.key)
    }

    /// The Pods of the JobSet.
    pub fn pods(&self) -> Option<&'a GroupPods> {
        self.store.pods.of(self.key)
    }

    /// Whether the status must also have the fields that agents of the Go JobSet read.
    pub fn report_attempts(&self) -> bool {
        self.pods().is_some_and(GroupPods::report_attempts)
    }

    /// The Pods of one Job.
    pub fn pods_of(&self, job: &JobView) -> Option<&'a JobPods> {
        self.pods()?.of_job(&job.uid)
    }

    /// Whether a Service of this name exists, with any owner.
    pub fn has_service(&self, name: &str) -> bool {
        self.store.services.find(&self.sibling(name)).is_some()
    }

    /// The claim of this name, if it carries the label of a JobSet.
    pub fn claim(&self, name: &str) -> Option<&'a ClaimView> {
        self.store.claims.find(&self.sibling(name)).map(|(_, claim)| claim)
    }

    /// The RoleBinding of this name, if it carries the label of a JobSet.
    pub fn role_binding(&self, name: &str) -> Option<&'a RoleBindingView> {
        self.store.role_bindings.find(&self.sibling(name)).map(|(_, binding)| binding)
    }

    /// Whether the namespace of the JobSet is being deleted.
    pub fn namespace_is_terminating(&self) -> bool {
        self.store.terminating.contains(&self.key.namespace)
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<&'a NodeView> {
        self.store.nodes.get(name)
    }

    /// The PriorityClasses of the cluster.
    pub fn priority_classes(&self) -> &'a PriorityClasses {
        &self.store.classes
    }

    /// For each unreachable node: since when it is unreachable, and the Pods of the JobSet's own Jobs on it.
    pub fn unreachable(
        &self,
    ) -> impl Iterator<Item = (k8s_openapi::jiff::Timestamp, impl Iterator<Item = &'a PodView> + use<'a>)> + use<'a>
    {
        let (observed, nodes) = (*self, self.store.nodes.unreachable());
        nodes.map(move |(node, since)| (since, observed.on_node(node)))
    }

    /// Whether the cluster has nodes, and none of them can restart Pods in place.
    pub fn all_nodes_outdated(&self) -> bool {
        self.store.nodes.all_outdated()
    }

    /// A node that cannot restart Pods in place and has Pods of the JobSet.
    pub fn outdated_node(&self) -> Option<&'a str> {
        self.store.nodes.outdated().find(|node| self.on_node(node).next().is_some())
    }

    fn on_node(&self, node: &str) -> impl Iterator<Item = &'a PodView> + use<'a> {
        let observed = *self;
        let pods = self.store.pods.on_node(node).filter(move |(_, jobset)| *jobset == observed.key);
        let jobs: HashSet<&str> = observed.jobs().map(|(_, job)| job.uid.as_str()).collect();
        let own = move |(pod, _): &(&Key, &Key)| {
            let uid = observed.pods().and_then(|pods| pods.job_of(&pod.name));
            uid.is_some_and(|uid| jobs.contains(uid))
        };
        pods.filter(own).filter_map(move |(pod, _)| observed.pods()?.find(&pod.name)).collect::<Vec<_>>().into_iter()
    }

    fn sibling(&self, name: &str) -> Key {
        Key { namespace: self.key.namespace.clone(), name: name.to_owned() }
    }
}
