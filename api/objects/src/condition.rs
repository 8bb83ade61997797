//! Conditions of Pods and Jobs.

use serde::Deserialize;

/// A condition of a Pod or a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
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
}

impl PartialCondition {
    /// Whether the status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The condition of this type.
pub(crate) fn find<'a>(conditions: &'a [PartialCondition], type_: &str) -> Option<&'a PartialCondition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}
