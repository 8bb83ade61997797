//! The agent's program against a real API server, and with real processes.

mod codes;
mod epochs;
mod fixture;
mod processes;
mod sidecar;
