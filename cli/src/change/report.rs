//! What has become of a change.

use serde::Serialize;

use crate::exit::Exit;
use crate::output::{BAD, GOOD, HEAD, Report, View, WAIT, paint};

/// The result of a command that changes a JobSet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeReport {
    pub name: String,
    pub namespace: String,
    pub outcome: ChangeOutcome,
    /// The same in words, and what to do.
    pub message: String,
    /// ID of the request of a restart, once it is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// `groupRestarts` including the restart that has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ChangeOutcome {
    /// It is as the user wants.
    Done,
    /// It would not have the effect that the user wants, so nothing was changed; or the controller has not carried it out.
    Refused,
    /// The change is stored, and the controller has not carried it out in time.
    TimedOut,
}

impl ChangeOutcome {
    pub fn exit(self) -> Exit {
        match self {
            Self::Done => Exit::Ok,
            Self::Refused => Exit::No,
            Self::TimedOut => Exit::Timeout,
        }
    }
}

impl Report for ChangeReport {
    fn text(&self, _: &View) -> String {
        let style = match self.outcome {
            ChangeOutcome::Done => GOOD,
            ChangeOutcome::Refused => BAD,
            ChangeOutcome::TimedOut => WAIT,
        };
        let name = paint(HEAD, format!("{}/{}", self.namespace, self.name));
        format!("{name} {}\n", paint(style, &self.message))
    }
}
