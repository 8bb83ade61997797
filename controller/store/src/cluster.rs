//! What concerns any JobSet: nodes, namespaces, PriorityClasses, and the objects that a JobSet finds by their name, whatever owns
//! them.

use std::collections::{BTreeSet, HashMap};
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
    /// The JobSets that have Pods on each node.
    on_node: HashMap<Arc<str>, BTreeSet<Key>>,
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
        self.on_node.get(node).into_iter().flatten()
    }

    /// A JobSet has its first Pod on the one node, and had its last one on the other.
    pub(crate) fn moved(&mut self, jobset: &Key, entered: Option<Arc<str>>, left: Option<Arc<str>>) {
        if let Some(node) = left
            && let Some(jobsets) = self.on_node.get_mut(&node)
        {
            jobsets.remove(jobset);
            if jobsets.is_empty() {
                self.on_node.remove(&node);
            }
        }
        if let Some(node) = entered {
            self.on_node.entry(node).or_default().insert(jobset.clone());
        }
    }
}
