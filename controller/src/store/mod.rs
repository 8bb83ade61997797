//! What the controller has seen: JobSets and their children, each reduced to what the rules read.
//!
//! Events go in (apply, delete, and a restart of a whole listing), keys of JobSets that may need work come out. There is
//! no clock and no client here. The store is filled before a JobSet is marked, so that whoever handles the mark finds
//! what caused it.

mod children;
mod claim;
pub(crate) mod dialect;
mod job;
mod namespaces;
mod nodes;
pub mod pods;
mod priority;
mod ranges;
mod refused;
mod role_binding;
mod service;
mod verdict;
mod watch_event;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jobset_api::JobSet;
use kube::ResourceExt;

pub use children::{Children, Versioned};
pub use claim::ClaimView;
pub(crate) use job::controller;
pub use job::{ControllerRef, Finished, JobView};
pub use namespaces::{NamespaceWire, Terminating};
pub use nodes::{NodeView, Nodes};
pub use priority::PriorityClasses;
pub use ranges::Ranges;
pub use role_binding::RoleBindingView;
pub use service::ServiceView;
pub use verdict::Findings;
use verdict::SpecVerdict;
pub use watch_event::{Change, WatchEvent};

/// Name of a namespaced object. As a key of the store, that of a JobSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl Key {
    /// Key of an object. Objects without a name do not come from an API server; theirs is empty.
    pub fn of(object: &impl ResourceExt) -> Self {
        Self { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Everything seen of all JobSets.
#[derive(Debug, Default)]
pub struct Store {
    /// JobSets, each the only child of its own key.
    pub jobsets: Children<Arc<JobSet>>,
    /// Jobs, by the JobSet that their label names.
    pub jobs: Children<JobView>,
    /// Pods, by the JobSet that their label names.
    pub pods: pods::Pods,
    /// Services, by the JobSet that their label names.
    pub services: Children<ServiceView>,
    /// PersistentVolumeClaims, by the JobSet that their label names.
    pub claims: Children<ClaimView>,
    /// RoleBindings, by the JobSet that their label names.
    pub role_bindings: Children<RoleBindingView>,
    /// Nodes.
    pub nodes: Nodes,
    /// Namespaces that are being deleted.
    pub terminating: Terminating,
    /// PriorityClasses.
    pub classes: PriorityClasses,
    /// Names of Pods that carry the label of a JobSet and that no Job controls: somebody made them by hand.
    strays: HashMap<Key, BTreeSet<String>>,
    /// What of their specifications cannot be carried out.
    verdicts: HashMap<Key, SpecVerdict>,
    /// What the API server, or whoever has taken a name, refuses to JobSets at present: `set_refused`.
    refused: HashMap<Key, Vec<String>>,
    /// Namespaces of a listing that has not ended.
    listed_terminating: Option<Terminating>,
    /// PriorityClasses of a listing that has not ended.
    listed_classes: Option<PriorityClasses>,
}

/// Versions up to which the store must have seen the objects of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Of JobSets.
    pub jobsets: u64,
    /// Of Jobs.
    pub jobs: u64,
    /// Of Services.
    pub services: u64,
    /// Of PersistentVolumeClaims.
    pub claims: u64,
    /// Of RoleBindings.
    pub role_bindings: u64,
}

impl Store {
    /// Whether the store has seen everything up to these versions.
    pub fn has_seen(&self, versions: Versions) -> bool {
        self.jobsets.has_seen(versions.jobsets)
            && self.jobs.has_seen(versions.jobs)
            && self.services.has_seen(versions.services)
            && self.claims.has_seen(versions.claims)
            && self.role_bindings.has_seen(versions.role_bindings)
    }

    /// What of the JobSet's specification cannot be carried out.
    pub fn findings(&self, key: &Key) -> Option<&Findings> {
        self.verdicts.get(key).map(SpecVerdict::findings)
    }

    /// Names of Pods that carry the JobSet's label and that no Job controls.
    pub fn strays(&self, key: &Key) -> impl Iterator<Item = &str> {
        self.strays.get(key).into_iter().flatten().map(String::as_str)
    }

    /// The JobSet.
    pub fn jobset(&self, key: &Key) -> Option<&Arc<JobSet>> {
        self.jobsets.map_of(key)?.values().next()
    }
}

impl Versioned for Arc<JobSet> {
    fn version(&self) -> u64 {
        version(self.as_ref())
    }
}

/// The resourceVersion as a number. Kubernetes gives one that grows with each write to a kind of object; anything else
/// counts as older than everything.
pub(crate) fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}
