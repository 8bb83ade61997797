//! Tests of the agent's program with a real API server and real processes.

mod codes;
mod epochs;
pub(crate) mod fixture;
mod output;
mod processes;
mod progress;
mod sidecar;
