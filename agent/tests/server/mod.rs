//! Tests of the agent's program with a real API server and real processes.

mod codes;
mod epochs;
mod fixture;
mod output;
mod processes;
mod sidecar;
