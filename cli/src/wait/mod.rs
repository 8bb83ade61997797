//! `wait`: waits until a JobSet runs, has restarted, or has finished.
//!
//! [`WaitDecision`] decides from the observed JobSet alone. [`follow`] watches it and tells the user how far it is.

mod decision;
mod follow;
mod report;
mod watched;

pub use decision::{Goal, WaitBaseline, WaitDecision};
pub use follow::follow;
pub use report::{WaitOutcome, WaitReport, progress};
