//! The part of a Job that is read.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use jobset_api::partial::metadata;

use super::condition::{self, Condition};

/// A Job as reports read it.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = Job)]
pub struct JobWire {
    /// Name, labels, times.
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// How many Pods it is to have.
    #[serde(default)]
    pub spec: JobSpec,
    /// How many it has.
    #[serde(default)]
    pub status: JobStatus,
}

/// How many Pods a Job is to have.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// Pods at once.
    pub parallelism: Option<i32>,
    /// Pods that have to succeed.
    pub completions: Option<i32>,
    /// Whether it is to have none for now.
    pub suspend: Option<bool>,
}

/// How many Pods a Job has, in which state.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// Pods that are ready.
    pub ready: Option<i32>,
    /// Pods that have succeeded.
    pub succeeded: Option<i32>,
    /// Pods that have failed.
    pub failed: Option<i32>,
    /// Complete, Failed and others.
    pub conditions: Vec<Condition>,
}

impl JobWire {
    /// Pods that it runs at once.
    pub fn pods(&self) -> i32 {
        let parallelism = self.spec.parallelism.unwrap_or(1);
        self.spec.completions.map_or(parallelism, |completions| parallelism.min(completions))
    }

    /// The condition of this type, if it is true.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        condition::find(&self.status.conditions, type_).filter(|condition| condition.is_true())
    }
}
