//! The agent from outside: its decisions, its program, and what it does at a real API server.

mod decide;
mod early;
mod program;
mod server;
mod supervise_rules;
