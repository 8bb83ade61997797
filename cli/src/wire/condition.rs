//! Conditions of Pods and of Jobs.

use serde::Deserialize;

/// One condition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

impl Condition {
    /// Whether it holds.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// The condition of this type.
pub(super) fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}
