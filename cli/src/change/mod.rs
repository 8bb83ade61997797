//! Commands that change a JobSet: `restart`, `suspend` and `resume`.
//!
//! [`restart`] and [`suspension`] decide, without requests. [`follow`] sends the change, and waits until the controller has it.

mod elsewhere;
mod follow;
mod report;
mod restart;
mod suspension;

pub use follow::{follow_restart, follow_suspension};
pub use report::{ChangeOutcome, ChangeReport};
pub use suspension::Suspension;
