//! Conditions of Pods and Jobs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

/// A condition of a Pod or a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialCondition {
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
    /// When the status changed last.
    pub last_transition_time: Option<Time>,
}

impl PartialCondition {
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

pub(crate) fn find<'a>(conditions: &'a [PartialCondition], type_: &str) -> Option<&'a PartialCondition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}
