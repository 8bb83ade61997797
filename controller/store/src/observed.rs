//! The observed state of one JobSet and its children, for one reconciliation.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jobset_api::epoch::GroupEpochs;
use jobset_api::gates::Gates;
use jobset_api::{JobSet, JobSetStatus, RestartStrategy, labels};
use k8s_openapi::jiff::Timestamp;

use crate::pods::{JobPods, JobSetPods, PodView};
use crate::{Cluster, ControllerRef, Entry, JobView, Key, Kind, NodeView, OwnedView, Store};

/// A Pod on a node of which something is true.
#[derive(Clone, Copy, Debug)]
pub struct PodOnNode<'a> {
    pub pod: &'a PodView,
    pub job: &'a str,
    /// Since when it is true of the node.
    pub since: Timestamp,
}

/// The agents of a JobSet on the agent stream, as the leader knows them.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamAgents<'a> {
    /// Number of connections to relays of each Pod that has one, by its UID; `None` if no Pod has one.
    pub connections: Option<&'a HashMap<Box<str>, u32>>,
    /// For how long Pods may have been without one.
    pub missing_for: Duration,
}

impl StreamAgents<'_> {
    pub fn has(&self, pod_uid: &str) -> bool {
        self.connections.is_some_and(|connections| connections.contains_key(pod_uid))
    }
}

/// The observed state of one JobSet. A view into the store without copies.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    pub jobset: &'a Arc<JobSet>,
    /// The JobSet with all that is observed of it alone.
    pub entry: &'a Entry,
    pub cluster: &'a Cluster,
    pub agents: StreamAgents<'a>,
    key: &'a Key,
}

impl<'a> Observed<'a> {
    /// Finds the JobSet; `None` if it was not observed.
    pub fn of(store: &'a Store, key: &'a Key) -> Option<Self> {
        let (entry, agents) = (store.entry(key)?, StreamAgents::default());
        Some(Self { jobset: entry.jobset.as_ref()?, key, entry, cluster: &store.cluster, agents })
    }

    #[must_use]
    pub fn with_agents(self, agents: StreamAgents<'a>) -> Self {
        Self { agents, ..self }
    }

    pub fn name(&self) -> &'a str {
        &self.key.name
    }

    /// The stored status, decoded by the store; empty before the first write.
    pub fn status(&self) -> JobSetStatus {
        self.jobset.status.clone().unwrap_or_default()
    }

    pub fn stored_epochs(&self) -> GroupEpochs {
        self.jobset.status.as_ref().map(JobSetStatus::epochs).unwrap_or_default()
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
        self.entry.jobs.iter().map(|(name, job)| (name.as_str(), job))
    }

    pub fn owns(&self, job: &JobView) -> bool {
        self.controls(job.controller.as_ref())
    }

    fn controls(&self, controller: Option<&ControllerRef>) -> bool {
        let uid = self.jobset.metadata.uid.as_ref();
        uid.is_some() && controller.map(|owner| &owner.uid) == uid
    }

    /// Whether an object that is to be a child belongs to somebody else, and stays: the garbage collector deletes the children of a
    /// deleted JobSet of this name.
    pub fn is_taken(&self, controller: Option<&ControllerRef>, deleting: bool) -> bool {
        let is_of_predecessor = controller.is_some_and(|owner| owner.is_jobset(self.name()));
        !self.controls(controller) && !deleting && !is_of_predecessor
    }

    /// Why the specification is invalid, if it is.
    pub fn invalid(&self) -> Option<&'a str> {
        self.entry.findings()?.invalid.as_deref()
    }

    /// Why the specification does not allow in-place restart although it requests it, if so.
    pub fn not_in_place(&self) -> Option<&'a str> {
        self.entry.findings()?.not_in_place.as_deref()
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

    pub fn pods(&self) -> &'a JobSetPods {
        &self.entry.pods
    }

    /// Whether the status must also have the fields that agents of the Go JobSet read.
    pub fn report_attempts(&self) -> bool {
        self.entry.pods.report_attempts()
    }

    pub fn pods_of(&self, job: &JobView) -> Option<&'a JobPods> {
        self.entry.pods.of_job(&job.uid)
    }

    /// Whether the namespace of the JobSet is being deleted.
    pub fn namespace_is_terminating(&self) -> bool {
        self.cluster.terminating.contains(&self.key.namespace)
    }

    pub fn node_of(&self, pod: &PodView) -> Option<&'a NodeView> {
        self.cluster.nodes.get(pod.node.as_deref()?)
    }

    /// The Pods of the JobSet's own Jobs on unreachable nodes.
    pub fn unreachable(&self) -> Vec<PodOnNode<'a>> {
        if !self.cluster.nodes.any_unreachable() {
            return Vec::new();
        }
        self.pods_since(|node| node.unreachable_since)
    }

    /// The Pods of the JobSet's own Jobs on cordoned nodes whose kubelet can end them.
    pub fn cordoned(&self) -> Vec<PodOnNode<'a>> {
        if !self.cluster.nodes.any_cordoned() {
            return Vec::new();
        }
        self.pods_since(|node| node.cordoned_since.filter(|_| node.ready))
    }

    fn pods_since(&self, since: impl Fn(&NodeView) -> Option<Timestamp>) -> Vec<PodOnNode<'a>> {
        let pods = self.pods_on(|_| true, |node| since(node).is_some()).into_iter();
        let pods = pods.filter_map(|(job, pod)| Some(PodOnNode { pod, job, since: since(self.node_of(pod)?)? }));
        pods.collect()
    }

    /// A node that cannot restart Pods in place and has Pods of one of these Jobs of the JobSet.
    pub fn outdated_node(&self, is_one: impl Fn(&JobView) -> bool) -> Option<&'a str> {
        if !self.cluster.nodes.any_outdated() {
            return None;
        }
        let pods = self.pods_on(is_one, |node| node.cannot_restart_in_place).into_iter();
        pods.filter_map(|(_, pod)| pod.node.as_deref()).min()
    }

    /// The Pods of some of the JobSet's own Jobs on some nodes, each with the UID of its Job, in the order of their names.
    fn pods_on(
        &self,
        is_job: impl Fn(&JobView) -> bool,
        is_node: impl Fn(&NodeView) -> bool,
    ) -> Vec<(&'a str, &'a PodView)> {
        let jobs: HashSet<&str> = self.jobs().filter(|(_, job)| is_job(job)).map(|(_, job)| job.uid.as_str()).collect();
        let pods = self.entry.pods.on_nodes(|name| self.cluster.nodes.get(name).is_some_and(&is_node)).into_iter();
        pods.filter(|(job, _)| jobs.contains(job)).collect()
    }

    /// The Service, PersistentVolumeClaim or RoleBinding of this name, if it carries the label of a JobSet, whichever owns it.
    pub fn owned(&self, kind: Kind, name: &str) -> Option<&'a OwnedView> {
        self.cluster.owned(kind, self.key.sibling(name))
    }
}
