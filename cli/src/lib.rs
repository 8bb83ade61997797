//! `kubectl jobset`: how JobSets are, why they restarted, why they do not run, and whether a manifest passes admission.
//!
//! - [`args`] is the command line, of which [`names`] are checked first, [`run`] carries it out,
//! - [`cluster`] reads objects (the only requests), as the partial objects of `jobset_objects`,
//! - [`status`], [`restarts`], [`explain`] and [`validate`] make a report of them: pure functions from objects to a value,
//! - [`output`] makes text of a report,
//! - [`completion`] is for shells.
//!
//! It changes nothing in a cluster.

pub mod args;
pub mod cluster;
pub mod completion;
pub mod error;
pub mod exit;
pub mod explain;
pub mod names;
pub mod output;
pub mod restarts;
pub mod run;
pub mod status;
#[cfg(test)]
mod testing;
pub mod validate;
