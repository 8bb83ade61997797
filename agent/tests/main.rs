//! The agent from outside: its decisions, its program, and what it does at a real API server.

mod decide;
mod early;
mod fake;
mod program;
mod refusals;
mod server;
mod supervise_rules;
