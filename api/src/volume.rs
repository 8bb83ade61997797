//! Persistent volume claims that a JobSet creates and its Pods share.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Claims with one retention policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeClaimPolicy {
    /// templates of the claims. A claim is named `<template name>-<jobSet.name>`, and containers mount it by the name
    /// of the template. The namespace must not be set: it is that of the JobSet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::markers::claim_templates")]
    pub templates: Vec<PersistentVolumeClaim>,

    /// retentionPolicy specifies when the claims are kept. Default: they are deleted with the JobSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_policy: Option<VolumeRetentionPolicy>,
}

/// When claims are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRetentionPolicy {
    /// whenDeleted specifies what happens to the claims when the JobSet is deleted. Default Delete. One of:
    ///
    /// - Delete: the claims are deleted with the JobSet.
    /// - Retain: the claims are kept. A JobSet that is created with the same name uses them again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Delete"))]
    pub when_deleted: Option<RetentionPolicy>,
}

/// The values of [`VolumeRetentionPolicy::when_deleted`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RetentionPolicy {
    #[default]
    Delete,
    Retain,
}
