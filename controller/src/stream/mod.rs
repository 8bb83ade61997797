//! The controller's side of the agent stream, without input and output: what the leader says to relays, and when.
//!
//! [`Desk`] is told what relays and agents do and which states of JobSets were written or observed. It says what to read from the
//! API server and what to send. `shell::stream` carries that out.

mod desk;
mod snapshot;

pub use desk::{Desk, DeskOutput, READ_PAUSE, ReadOutcome, RelayId, RelayMessage};
pub use snapshot::{GroupSnapshot, uses_relay};
