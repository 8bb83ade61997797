//! `nodes`: the nodes by the failures that are blamed on them, over JobSets.
//!
//! [`tally`] counts the strikes of one JobSet, which [`crate::status`] and [`crate::explain`] show, too; [`report`] adds up those of
//! several, and [`render`] makes the text.

mod render;
mod report;
mod tally;

pub use report::{NodeReport, NodeRow, report};
pub use tally::{NodeTally, tally};
