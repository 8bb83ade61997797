//! JobSets as the API server sends them, and how much of each is read.
//!
//! How much memory a JobSet takes is known only when it is read ([`jobset_api::weight`]). So its text is kept until the store
//! takes the event in, which knows how much the namespace may still take. What is too heavy is not read.

use std::sync::Arc;

use jobset_api::{JobSet, JobSetSpec, JobSetStatus, weight};
use jobset_objects::whole_metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::{Key, Store};

/// Most memory that the metadata of a JobSet may take, and its status, in bytes.
const MAX_HEAD: usize = 4 << 20;
/// All JobSets may take the memory that so many namespaces may take.
const NAMESPACES: usize = 2;
/// Memory that the JobSets of each namespace may take whatever others take, in bytes.
const RESERVED: usize = 4 << 20;

/// A JobSet that is not read yet, apart from its identity.
#[derive(Clone, Debug, Resource)]
#[resource(inherit = "JobSet")]
pub struct StoredJobSet {
    metadata: ObjectMeta,
    text: Box<RawValue>,
}

/// A JobSet without most of its specification.
#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[serde(rename_all = "camelCase")]
#[resource(inherit = "JobSet")]
pub struct JobSetHead {
    api_version: String,
    kind: String,
    #[serde(deserialize_with = "whole_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SpecHead,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<JobSetStatus>,
}

/// The fields of a specification that say whose the JobSet is, and when it is deleted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecHead {
    #[serde(skip_serializing_if = "Option::is_none")]
    managed_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_seconds_after_finished: Option<i32>,
}

/// The parts of a JobSet, each as text.
#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Metadata(#[serde(deserialize_with = "whole_metadata")] ObjectMeta);

/// Metadata without labels, annotations and all else that can be long.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
}

/// The memory that JobSets may take, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// The specification of one JobSet.
    pub(crate) spec: usize,
    /// All JobSets of one namespace.
    pub(crate) namespace: usize,
    /// What the others of its namespace take.
    pub(crate) taken: usize,
}

/// What was read of a JobSet.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The JobSet, or what was read of it.
    pub(crate) jobset: JobSet,
    /// The memory that it takes, in bytes.
    pub(crate) weight: usize,
    /// Why it was not read whole.
    pub(crate) unread: Option<Unread>,
}

/// Why a JobSet was not read whole. Without its specification, nothing of it can be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unread {
    pub(crate) reason: Box<str>,
    /// Whether it may be read when others of its namespace take less memory.
    pub(crate) waits_for_room: bool,
    /// Whether the status is missing, too. Then none may be written.
    pub(crate) is_status_missing: bool,
}

impl<'de> Deserialize<'de> for StoredJobSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Identified {
            metadata: Identity,
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let Identified { metadata } = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        Ok(Self { metadata: metadata.into(), text })
    }
}

impl From<Identity> for ObjectMeta {
    fn from(identity: Identity) -> Self {
        Self {
            name: identity.name,
            namespace: identity.namespace,
            uid: identity.uid,
            resource_version: identity.resource_version,
            generation: identity.generation,
            creation_timestamp: identity.creation_timestamp,
            deletion_timestamp: identity.deletion_timestamp,
            ..Self::default()
        }
    }
}

impl StoredJobSet {
    /// The whole JobSet, if its specification takes at most so many bytes of memory, and it matches the schema.
    pub fn whole(&self, limit: usize) -> Option<JobSet> {
        let reading = self.read(Allowance { spec: limit, namespace: usize::MAX, taken: 0 });
        reading.unread.is_none().then_some(reading.jobset)
    }

    /// Reads the JobSet as far as it may take memory.
    pub(crate) fn read(&self, allowance: Allowance) -> Reading {
        let parts = serde_json::from_str(self.text.get());
        let Parts { metadata, spec, status } = match parts {
            Ok(parts) => parts,
            Err(error) => return self.without_parts(&error),
        };
        let [spec, status] = [spec, status].map(|part| part.map_or("null", RawValue::get));
        let metadata = weight::read::<Metadata>(metadata.get(), MAX_HEAD);
        let status = weight::read::<Option<JobSetStatus>>(status, MAX_HEAD);
        let head = metadata.as_ref().map_or(0, |it| it.weight) + status.as_ref().map_or(0, |it| it.weight);
        let room = allowance.namespace.saturating_sub(allowance.taken).saturating_sub(head);
        let read_spec = weight::read::<JobSetSpec>(spec, allowance.spec.min(room));
        match (metadata, status, read_spec) {
            (Ok(metadata), Ok(status), Ok(spec)) => Reading {
                weight: head + spec.weight,
                jobset: JobSet { metadata: metadata.value.0, spec: spec.value, status: status.value },
                unread: None,
            },
            (metadata, status, read_spec) => {
                let waits_for_room =
                    room < allowance.spec && read_spec.as_ref().err().is_some_and(weight::is_too_heavy);
                let reason = match (&metadata, &status, &read_spec) {
                    (Err(error), ..) => of_head("metadata", error),
                    (_, Err(error), _) => of_head("status", error),
                    (.., Err(_)) if waits_for_room => no_room(&allowance),
                    (.., Err(error)) => of_spec(error, &allowance),
                    (Ok(_), Ok(_), Ok(_)) => String::new(),
                };
                let is_status_missing = status.is_err();
                let SpecHead { managed_by, ttl_seconds_after_finished } =
                    serde_json::from_str(spec).unwrap_or_default();
                let spec = JobSetSpec { managed_by, ttl_seconds_after_finished, ..JobSetSpec::default() };
                let status = status.ok().and_then(|status| status.value);
                let metadata = metadata.map_or_else(|_| self.metadata.clone(), |metadata| metadata.value.0);
                let unread = Some(Unread { reason: reason.into(), waits_for_room, is_status_missing });
                Reading { weight: head, jobset: JobSet { metadata, spec, status }, unread }
            }
        }
    }

    /// Nothing but the identity can be read.
    fn without_parts(&self, error: &serde_json::Error) -> Reading {
        let reason = format!("it does not match the schema: {error}").into();
        let unread = Some(Unread { reason, waits_for_room: false, is_status_missing: true });
        let jobset = JobSet { metadata: self.metadata.clone(), ..JobSet::default() };
        Reading { jobset, weight: 0, unread }
    }
}

impl Store {
    /// Reads a JobSet, if it may take the memory.
    pub(crate) fn read(&mut self, key: &Key, stored: &StoredJobSet) -> (Arc<JobSet>, Option<Unread>) {
        let (spec, namespace) = (self.limits.of_jobset, self.memory_of(&key.namespace));
        let reading = stored.read(Allowance { spec, namespace, taken: self.room.taken_beside(key) });
        let waits = reading.unread.as_ref().is_some_and(|unread| unread.waits_for_room);
        if self.room.put(key, reading.weight, waits) {
            self.read_waiting(&key.namespace);
        }
        (Arc::new(reading.jobset), reading.unread)
    }

    /// A JobSet is gone, and what it took is free.
    pub(crate) fn forget_memory(&mut self, key: &Key) {
        self.room.remove(key);
        self.read_waiting(&key.namespace);
    }

    /// Has a JobSet listed again that could not be read for want of room, if there is room for the largest one: of the namespace
    /// that takes less now, or of another one.
    fn read_waiting(&mut self, namespace: &str) {
        let spec = self.limits.of_jobset;
        let mut waiting = std::iter::once(namespace.to_owned()).chain(self.room.waiting());
        let next = waiting.find_map(|namespace| {
            let limit = self.memory_of(&namespace);
            let largest = spec.saturating_add(2 * MAX_HEAD).min(limit / 2);
            self.room.next_waiting(&namespace, limit - largest)
        });
        self.relist.extend(next);
    }

    /// The memory that the JobSets of a namespace may take: what the settings say, or less while other namespaces take most of what
    /// all may take together.
    fn memory_of(&self, namespace: &str) -> usize {
        let most = Some(self.limits.of_namespace).filter(|most| *most > 0).unwrap_or(usize::MAX);
        let left = most.saturating_mul(NAMESPACES).saturating_sub(self.room.taken_by_others(namespace));
        most.min(left.max(RESERVED))
    }
}

impl JobSetHead {
    /// The JobSet without its specification, with another status.
    pub fn of(jobset: &JobSet, status: JobSetStatus) -> Self {
        Self {
            api_version: JobSet::api_version(&()).into_owned(),
            kind: JobSet::kind(&()).into_owned(),
            metadata: jobset.metadata.clone(),
            spec: SpecHead::default(),
            status: Some(status),
        }
    }

    /// The JobSet, of whose specification most is missing.
    pub fn into_jobset(self) -> JobSet {
        let SpecHead { managed_by, ttl_seconds_after_finished } = self.spec;
        let spec = JobSetSpec { managed_by, ttl_seconds_after_finished, ..JobSetSpec::default() };
        JobSet { metadata: self.metadata, spec, status: self.status }
    }
}

fn of_head(part: &str, error: &serde_json::Error) -> String {
    if weight::is_too_heavy(error) {
        format!("its {part} takes more than {} MiB of memory", MAX_HEAD >> 20)
    } else {
        format!("its {part} does not match the schema: {error}")
    }
}

fn of_spec(error: &serde_json::Error, allowance: &Allowance) -> String {
    if weight::is_too_heavy(error) {
        let mib = allowance.spec >> 20;
        format!(
            "its specification takes more than {mib} MiB of memory, the limit of one JobSet (--max-memory-per-jobset of the \
             controller): delete the JobSet and create a smaller one, or raise the limit"
        )
    } else {
        format!("its specification does not match the schema: {error}")
    }
}

fn no_room(allowance: &Allowance) -> String {
    let mib = allowance.namespace >> 20;
    format!(
        "the JobSets of the namespace take all of the {mib} MiB of memory that they may take together \
         (--max-memory-per-namespace of the controller, or less while all namespaces take twice that): delete some of them, or raise the limit; it goes on when there is room"
    )
}
