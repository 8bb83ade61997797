//! `restarts`: how often a JobSet has restarted as a group, and where the time went.
//!
//! [`events`] reads the controller's Events, [`report`] puts them together to restarts, [`render`] makes text of them.

mod events;
mod render;
mod report;
#[cfg(test)]
mod tests;

pub use events::Told;
pub use report::{Manner, Phase, Restart, Restarts, report};
