//! `goodput`: where the time of JobSets went, by the ledger of their status.
//!
//! [`report`] adds up the ledgers, and [`render`] makes the text.

mod render;
mod report;

pub use render::summary;
pub use report::{GoodputReport, GoodputRow, report};
