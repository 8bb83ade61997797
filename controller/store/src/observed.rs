//! The observed state of one JobSet and its children, for one reconciliation.

use std::collections::HashSet;
use std::sync::Arc;

use jobset_api::gates::Gates;
use jobset_api::{JobSet, JobSetStatus, RestartStrategy, labels};
use k8s_openapi::jiff::Timestamp;

use crate::pods::{JobPods, JobSetPods, PodView};
use crate::{Cluster, Entry, JobView, Key, Kind, NodeView, OwnedView, PriorityClasses, Store};

/// The observed state of one JobSet. A view into the store without copies.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    pub jobset: &'a Arc<JobSet>,
    key: &'a Key,
    entry: &'a Entry,
    cluster: &'a Cluster,
}

impl<'a> Observed<'a> {
    /// Finds the JobSet; `None` if it was not observed.
    pub fn of(store: &'a Store, key: &'a Key) -> Option<Self> {
        let entry = store.entry(key)?;
        Some(Self { jobset: entry.jobset.as_ref()?, key, entry, cluster: &store.cluster })
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
        self.entry.jobs.iter().map(|(name, job)| (name.as_str(), job))
    }

    /// Names of Pods that carry the label of the JobSet and that no Job controls.
    pub fn orphan_pods(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.entry.orphans.iter().map(String::as_str)
    }

    /// The Job of this name, if it carries the label of the JobSet. Its controller may be this JobSet or another object, such
    /// as a deleted JobSet of the same name.
    pub fn job(&self, name: &str) -> Option<&'a JobView> {
        self.entry.jobs.get(name)
    }

    pub fn owns(&self, job: &JobView) -> bool {
        let uid = self.jobset.metadata.uid.as_ref();
        uid.is_some() && job.controller.as_ref().map(|owner| &owner.uid) == uid
    }

    /// Why the specification is invalid, if it is.
    pub fn invalid(&self) -> Option<&'a str> {
        self.entry.findings()?.invalid.as_deref()
    }

    /// Whether the specification was not read, so that the JobSet has none: [`Self::invalid`] says why.
    pub fn is_unread(&self) -> bool {
        self.entry.is_unread()
    }

    /// Whether the status was not read, so that none may be written.
    pub fn is_status_missing(&self) -> bool {
        self.entry.is_status_missing()
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

    /// Which message patterns of the failure policy can never match, if any.
    pub fn unmatchable(&self) -> Option<&'a str> {
        self.entry.findings()?.unmatchable.as_deref()
    }

    /// The index of the first rule of the failure policy that the failed Job matches, if any.
    pub fn own_rule(&self, job: &JobView) -> Option<usize> {
        self.entry.own_rule(job)
    }

    /// The refused requests of the JobSet, each with its reason; `None` before the controller has sent any.
    pub fn refused(&self) -> Option<&'a [String]> {
        self.entry.refused.as_deref()
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

    /// Whether a Service of this name exists, with any owner.
    pub fn has_service(&self, name: &str) -> bool {
        self.owned(Kind::Service, name).is_some()
    }

    /// The claim of this name, if it carries the label of a JobSet.
    pub fn claim(&self, name: &str) -> Option<&'a OwnedView> {
        self.owned(Kind::Claim, name)
    }

    /// The RoleBinding of this name, if it carries the label of a JobSet.
    pub fn role_binding(&self, name: &str) -> Option<&'a OwnedView> {
        self.owned(Kind::RoleBinding, name)
    }

    /// Whether the namespace of the JobSet is being deleted.
    pub fn namespace_is_terminating(&self) -> bool {
        self.cluster.terminating.contains(&self.key.namespace)
    }

    pub fn node(&self, name: &str) -> Option<&'a NodeView> {
        self.cluster.nodes.get(name)
    }

    pub fn priority_classes(&self) -> &'a PriorityClasses {
        &self.cluster.classes
    }

    /// The Pods of the JobSet's own Jobs on unreachable nodes, each with the time since when its node is unreachable.
    pub fn unreachable(&self) -> Vec<(Timestamp, &'a PodView)> {
        let nodes = &self.cluster.nodes;
        if !nodes.any_unreachable() {
            return Vec::new();
        }
        let pods = self.pods_on(|_| true, |node| nodes.unreachable_since(node).is_some());
        pods.into_iter().filter_map(|pod| Some((nodes.unreachable_since(pod.node.as_deref()?)?, pod))).collect()
    }

    /// Whether the node of the Pod is unreachable.
    pub fn is_unreachable(&self, pod: &PodView) -> bool {
        pod.node.as_deref().is_some_and(|node| self.cluster.nodes.unreachable_since(node).is_some())
    }

    /// Whether the cluster has nodes, and none of them can restart Pods in place.
    pub fn all_nodes_outdated(&self) -> bool {
        self.cluster.nodes.all_outdated()
    }

    /// A node that cannot restart Pods in place and has Pods of one of these Jobs of the JobSet.
    pub fn outdated_node(&self, is_one: impl Fn(&JobView) -> bool) -> Option<&'a str> {
        let nodes = &self.cluster.nodes;
        if !nodes.any_outdated() {
            return None;
        }
        self.pods_on(is_one, |node| nodes.is_outdated(node)).into_iter().filter_map(|pod| pod.node.as_deref()).min()
    }

    /// The Pods of some of the JobSet's own Jobs on some nodes, in the order of their names.
    fn pods_on(&self, is_job: impl Fn(&JobView) -> bool, is_node: impl Fn(&str) -> bool) -> Vec<&'a PodView> {
        let jobs: HashSet<&str> = self.jobs().filter(|(_, job)| is_job(job)).map(|(_, job)| job.uid.as_str()).collect();
        let pods = self.entry.pods.on_nodes(is_node).into_iter();
        pods.filter(|(job, _)| jobs.contains(job)).map(|(_, pod)| pod).collect()
    }

    fn owned(&self, kind: Kind, name: &str) -> Option<&'a OwnedView> {
        self.cluster.owned(kind, self.key.sibling(name))
    }
}
