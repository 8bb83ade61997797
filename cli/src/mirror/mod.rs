//! What the watches have observed: JobSets with their Jobs, Pods and restarts.
//!
//! [`Mirror`] is told each [`WatchEvent`] and has the current objects of each JobSet. It keeps the fields that reports read
//! ([`trim`]), so that thousands of Pods take some megabytes.

mod store;
#[cfg(test)]
mod tests;
mod trim;

use std::fmt;

use jobset_api::JobSet;
use jobset_objects::{PartialJob, PartialPod};
use k8s_openapi::api::events::v1::Event;
use kube::runtime::watcher;
use tokio::time::Instant;

pub use store::{Mirror, ObservedJobSet};

use crate::error::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    JobSet,
    Job,
    Pod,
    Event,
}

impl ObjectKind {
    /// The kind in a sentence.
    pub fn plural(self) -> &'static str {
        match self {
            Self::JobSet => "JobSets",
            Self::Job => "Jobs",
            Self::Pod => "Pods",
            Self::Event => "Events",
        }
    }
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one event at a time is under way")]
pub enum WatchEvent {
    JobSet(watcher::Event<JobSet>),
    Job(watcher::Event<PartialJob>),
    Pod(watcher::Event<PartialPod>),
    Event(watcher::Event<Event>),
    /// A watch has failed, at this time. It is retried.
    Failed(ObjectKind, Error, Instant),
}

/// Namespace and name of a JobSet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobSetKey {
    pub namespace: String,
    pub name: String,
}

impl JobSetKey {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for JobSetKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}
