//! What concerns any JobSet: nodes, namespaces, PriorityClasses, and the objects that a JobSet finds by their name, whatever owns
//! them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::nodes::Nodes;
use crate::priority::PriorityClasses;
use crate::{Key, Kind, OwnedView};

/// The part of the cluster that the JobSets share.
#[derive(Debug, Default)]
pub struct Cluster {
    pub nodes: Nodes,
    pub classes: PriorityClasses,
    /// Namespaces that are being deleted.
    pub terminating: BTreeSet<String>,
    /// Services, PersistentVolumeClaims and RoleBindings with the label of a JobSet.
    owned: HashMap<(Kind, Key), OwnedView>,
    /// The JobSets that have Pods on each node, and how many each has there.
    on_node: HashMap<Arc<str>, BTreeMap<Key, usize>>,
}

impl Cluster {
    /// The Service, PersistentVolumeClaim or RoleBinding of this name.
    pub fn owned(&self, kind: Kind, name: Key) -> Option<&OwnedView> {
        self.owned.get(&(kind, name))
    }

    pub(crate) fn put_owned(&mut self, kind: Kind, name: Key, view: OwnedView) {
        self.owned.insert((kind, name), view);
    }

    pub(crate) fn remove_owned(&mut self, kind: Kind, name: Key) {
        self.owned.remove(&(kind, name));
    }

    /// The JobSets that have Pods on a node.
    pub(crate) fn on_node(&self, node: &str) -> impl Iterator<Item = &Key> {
        self.on_node.get(node).into_iter().flat_map(BTreeMap::keys)
    }

    /// The name of a node. One allocation is enough for all Pods on it.
    pub(crate) fn shared_name(&self, node: Arc<str>) -> Arc<str> {
        self.on_node.get_key_value(&node).map_or(node, |(known, _)| known.clone())
    }

    /// A Pod of a JobSet has come to the one node, and gone from the other.
    pub(crate) fn moved(&mut self, jobset: &Key, to: Option<Arc<str>>, from: Option<Arc<str>>) {
        if to == from {
            return;
        }
        if let Some(node) = from
            && let Some(jobsets) = self.on_node.get_mut(&node)
        {
            if let Some(pods) = jobsets.get_mut(jobset) {
                *pods -= 1;
            }
            jobsets.retain(|_, pods| *pods > 0);
            if jobsets.is_empty() {
                self.on_node.remove(&node);
            }
        }
        if let Some(node) = to {
            *self.on_node.entry(node).or_default().entry(jobset.clone()).or_default() += 1;
        }
    }
}
