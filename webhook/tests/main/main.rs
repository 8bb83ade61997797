//! The admission service from outside: over TLS, as a process, and registered with a real API server.

mod api_server;
mod client;
mod cluster;
mod process;
mod rotation;
mod server;
