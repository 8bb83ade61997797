//! The agent from outside: its decisions, and its program.

mod decide;
mod program;
