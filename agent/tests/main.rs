//! Tests of the agent's public interface: its decisions, its program, and its behaviour with a real API server.

mod connection;
mod decide;
mod early;
mod fake;
mod program;
mod rules;
mod server;
mod signals;
mod supervise_rules;
mod termination_log;
mod throughput;
