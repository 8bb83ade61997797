//! The admission service from outside: over TLS, as a process, and registered with a real API server.

// Test code outside of the functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod api_server;
mod client;
mod cluster;
mod process;
mod rotation;
mod server;
mod updates;
