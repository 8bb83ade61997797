//! The relay from outside: the program, with tokens of a real API server, and agents and controllers that the tests play.

// Test code outside of the functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod attacks;
mod cluster;
mod lifecycle;
mod peers;
mod program;
mod stream;
mod tokens;
