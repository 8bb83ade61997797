//! `kubectl jobset`: the state of JobSets, why they restarted, why they do not run, and whether a manifest passes admission; a
//! wait for them, their restart and suspension, and a page that shows them live.
//!
//! - [`args`] is the command line, [`names`] checks the names in it, [`run`] runs the command,
//! - [`cluster`] sends all requests, and reads partial objects (`jobset_objects`),
//! - [`status`], [`restarts`], [`goodput`], [`explain`], [`nodes`] and [`validate`] are pure functions from objects to a report,
//! - [`mirror`] keeps what watches observe: for [`wait`], which decides whether a JobSet is what the user waits for, and for
//!   [`ui`], the local page,
//! - [`change`] restarts, suspends and resumes JobSets,
//! - [`logs`] reads the logs of all workers,
//! - [`leader`] says which controller leads,
//! - [`output`] renders a report,
//! - [`completion`] completes command lines in shells.
//!
//! But for [`change`], the plugin only reads from the cluster.

pub mod args;
pub mod change;
pub mod cluster;
pub mod completion;
pub mod error;
pub mod exit;
pub mod explain;
pub mod goodput;
pub mod leader;
pub mod logs;
pub mod mirror;
pub mod names;
pub mod nodes;
pub mod output;
pub mod restarts;
pub mod run;
pub mod status;
#[cfg(test)]
mod tests;
pub mod ui;
pub mod validate;
pub mod wait;
