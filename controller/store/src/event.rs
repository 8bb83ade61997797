//! What the watches show, each object reduced to what the rules read.

use std::sync::Arc;

use jobset_api::JobSet;
use jobset_objects::{PartialNode, metadata};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Deserialize;

use crate::job::{ControllerRef, controller};
use crate::pods::PodView;
use crate::{JobView, Key, Kind, StoredJobSet, version};

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "almost all events are of the large variant")]
pub enum WatchEvent {
    /// The object exists and is like this.
    Put {
        object: Key,
        /// The JobSet that the object belongs to, if it names one.
        owner: Option<Key>,
        view: View,
    },
    /// The object is gone, as of this resourceVersion.
    Gone(Kind, Key, u64),
    ListingBegins(Kind),
    /// The listing has ended: an object that it did not show is gone.
    ListingEnded(Kind),
}

#[derive(Clone, Debug)]
pub enum View {
    JobSet(Arc<JobSet>),
    /// A JobSet that the engine reads, if it does not take too much memory.
    StoredJobSet(Box<StoredJobSet>),
    Job(JobView),
    Pod(PodView),
    /// A Service, a PersistentVolumeClaim or a RoleBinding.
    Owned(Kind, OwnedView),
    Node(Box<PartialNode>),
    Namespace(Box<PartialNamespace>),
    PriorityClass(Box<PriorityClass>),
}

/// A Service, a PersistentVolumeClaim or a RoleBinding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedView {
    /// resourceVersion.
    pub version: u64,
    /// The object that controls it, if any. A claim may outlive its JobSet.
    pub controller: Option<ControllerRef>,
    pub deleting: bool,
}

/// The fields of a namespace that the rules read.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = "k8s_openapi::api::core::v1::Namespace")]
pub struct PartialNamespace {
    #[serde(default, deserialize_with = "metadata")]
    pub(crate) metadata: ObjectMeta,
}

impl OwnedView {
    pub fn of(object: &impl ResourceExt) -> Self {
        let deleting = object.meta().deletion_timestamp.is_some();
        Self { version: version(object), controller: controller(object), deleting }
    }
}

impl WatchEvent {
    /// A child of the JobSet `owner`.
    pub fn child(object: Key, owner: &Key, view: View) -> Self {
        Self::Put { object, owner: Some(owner.clone()), view }
    }

    /// A JobSet. It is its own owner.
    pub fn jobset(jobset: Arc<JobSet>) -> Self {
        let key = Key::of(jobset.as_ref());
        Self::Put { object: key.clone(), owner: Some(key), view: View::JobSet(jobset) }
    }

    /// A JobSet that is not read yet.
    pub fn stored_jobset(jobset: StoredJobSet) -> Self {
        let key = Key::of(&jobset);
        Self::Put { object: key.clone(), owner: Some(key), view: View::StoredJobSet(Box::new(jobset)) }
    }

    /// An object that belongs to no JobSet and concerns any.
    pub fn shared(object: Key, view: View) -> Self {
        Self::Put { object, owner: None, view }
    }
}

impl View {
    pub fn kind(&self) -> Kind {
        match self {
            Self::JobSet(_) | Self::StoredJobSet(_) => Kind::JobSet,
            Self::Job(_) => Kind::Job,
            Self::Pod(_) => Kind::Pod,
            Self::Owned(kind, _) => *kind,
            Self::Node(_) => Kind::Node,
            Self::Namespace(_) => Kind::Namespace,
            Self::PriorityClass(_) => Kind::PriorityClass,
        }
    }

    pub fn version(&self) -> u64 {
        match self {
            Self::JobSet(jobset) => version(jobset.as_ref()),
            Self::StoredJobSet(jobset) => version(jobset.as_ref()),
            Self::Job(job) => job.version,
            Self::Pod(pod) => pod.version,
            Self::Owned(_, view) => view.version,
            Self::Node(node) => version(node.as_ref()),
            Self::Namespace(namespace) => version(namespace.as_ref()),
            Self::PriorityClass(class) => version(class.as_ref()),
        }
    }
}
