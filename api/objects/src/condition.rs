//! Conditions of Pods and Jobs.

use k8s_openapi::api::batch::v1::JobCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

/// A condition of a Pod or a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason in one word.
    pub reason: String,
    /// Message for people.
    pub message: String,
    /// When the status changed last.
    pub last_transition_time: Option<Time>,
}

impl From<&JobCondition> for PartialCondition {
    fn from(condition: &JobCondition) -> Self {
        Self {
            type_: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
            last_transition_time: condition.last_transition_time.clone(),
        }
    }
}

impl PartialCondition {
    /// Whether the status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

pub(crate) fn find<'a>(conditions: &'a [PartialCondition], type_: &str) -> Option<&'a PartialCondition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}
