//! One JobSet and what belongs to it, as the store holds it, for one pass of the rules.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jobset_api::{JobSet, JobSetStatus};

use crate::store::pods::{GroupPods, JobPods, PodView};
use crate::store::{ClaimView, JobView, Key, NodeView, PriorityClasses, RoleBindingView, Store};

/// What the rules see of one JobSet. A view into the store: nothing is copied.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The JobSet.
    pub jobset: &'a Arc<JobSet>,
    key: &'a Key,
    store: &'a Store,
}

static NO_JOBS: BTreeMap<String, JobView> = BTreeMap::new();

impl<'a> Observed<'a> {
    /// Finds the JobSet in the store; `None` if it is not there.
    pub fn of(store: &'a Store, key: &'a Key) -> Option<Self> {
        Some(Self { jobset: store.jobset(key)?, key, store })
    }

    /// The stored status, in the words of the rules; an empty one before the first write.
    pub fn status(&self) -> JobSetStatus {
        self.jobset.status.clone().unwrap_or_default()
    }

    /// The JobSet's own Jobs, of whatever attempt, by name.
    pub fn jobs(&self) -> impl Iterator<Item = (&'a str, &'a JobView)> + use<'a> {
        let seen = *self;
        self.labelled_jobs().filter(move |(_, job)| seen.owns(job))
    }

    /// Jobs that carry the JobSet's label and are not its own, by name.
    pub fn foreign_jobs(&self) -> impl Iterator<Item = (&'a str, &'a JobView)> + use<'a> {
        let seen = *self;
        self.labelled_jobs().filter(move |(_, job)| !seen.owns(job))
    }

    fn labelled_jobs(&self) -> impl Iterator<Item = (&'a str, &'a JobView)> + use<'a> {
        let jobs = self.store.jobs.map_of(self.key).unwrap_or(&NO_JOBS);
        jobs.iter().map(|(name, job)| (name.as_str(), job))
    }

    /// Pods that carry the JobSet's label and that no Job controls.
    pub fn orphan_pods(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.store.strays(self.key)
    }

    /// The Job of this name, if it carries the JobSet's label: its own, or one that is controlled by something else, such
    /// as a JobSet of the same name that was deleted.
    pub fn job(&self, name: &str) -> Option<&'a JobView> {
        self.store.jobs.map_of(self.key)?.get(name)
    }

    /// Whether the Job is the JobSet's own.
    pub fn owns(&self, job: &JobView) -> bool {
        let uid = self.jobset.metadata.uid.as_ref();
        uid.is_some() && job.controller.as_ref().map(|owner| &owner.uid) == uid
    }

    /// Why nothing of the JobSet can be carried out, if nothing can.
    pub fn invalid(&self) -> Option<&'a str> {
        self.store.findings(self.key)?.invalid.as_deref()
    }

    /// Why its workers cannot restart in place although it asks for that, if they cannot.
    pub fn not_in_place(&self) -> Option<&'a str> {
        self.store.findings(self.key)?.not_in_place.as_deref()
    }

    /// Which message patterns of its failure policy match nothing, if any.
    pub fn unmatchable(&self) -> Option<&'a str> {
        self.store.findings(self.key)?.unmatchable.as_deref()
    }

    /// What is refused to it at present, each with its reason; `None` while that is not known.
    pub fn refused(&self) -> Option<&'a [String]> {
        self.store.refused(self.key)
    }

    /// The JobSet's Pods.
    pub fn pods(&self) -> Option<&'a GroupPods> {
        self.store.pods.of(self.key)
    }

    /// Whether its status is to be stored for agents of the Go JobSet, too.
    pub fn report_attempts(&self) -> bool {
        self.pods().is_some_and(GroupPods::report_attempts)
    }

    /// The Pods of one Job.
    pub fn pods_of(&self, job: &JobView) -> Option<&'a JobPods> {
        self.pods()?.of_job(&job.uid)
    }

    /// Whether a Service of this name is there, whoever owns it.
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

    /// Whether its namespace is being deleted.
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

    /// Nodes that are unreachable, since when, and the Pods of the JobSet's own Jobs on them.
    pub fn unreachable(
        &self,
    ) -> impl Iterator<Item = (k8s_openapi::jiff::Timestamp, impl Iterator<Item = &'a PodView> + use<'a>)> + use<'a>
    {
        let (seen, nodes) = (*self, self.store.nodes.unreachable());
        nodes.map(move |(node, since)| (since, seen.on_node(node)))
    }

    /// Whether there are nodes, and none of them can restart Pods in place.
    pub fn all_nodes_outdated(&self) -> bool {
        self.store.nodes.all_outdated()
    }

    /// A node that cannot restart Pods in place and has Pods of the JobSet.
    pub fn outdated_node(&self) -> Option<&'a str> {
        self.store.nodes.outdated().find(|node| self.on_node(node).next().is_some())
    }

    fn on_node(&self, node: &str) -> impl Iterator<Item = &'a PodView> + use<'a> {
        let seen = *self;
        let pods = self.store.pods.on_node(node).filter(move |(_, jobset)| *jobset == seen.key);
        let jobs: HashSet<&str> = seen.jobs().map(|(_, job)| job.uid.as_str()).collect();
        let own = move |(pod, _): &(&Key, &Key)| {
            let uid = seen.pods().and_then(|pods| pods.job_of(&pod.name));
            uid.is_some_and(|uid| jobs.contains(uid))
        };
        pods.filter(own).filter_map(move |(pod, _)| seen.pods()?.find(&pod.name)).collect::<Vec<_>>().into_iter()
    }

    fn sibling(&self, name: &str) -> Key {
        Key { namespace: self.key.namespace.clone(), name: name.to_owned() }
    }
}
