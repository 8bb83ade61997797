//! `restarts`: the group restarts of a JobSet, and how long their phases took.
//!
//! [`events`] reads the controller's Events, [`report`] groups them by restart and adds the last restarts of the status, and
//! [`render`] makes the text.

mod events;
mod render;
mod report;

pub use events::RestartEvent;
pub use report::{FinalFailure, GroupRestart, RestartManner, RestartPhase, RestartReport, report};
