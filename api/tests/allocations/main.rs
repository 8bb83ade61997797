//! What reading and checking a JobSet allocates: as much as its weight says, and in proportion to its size.

#![allow(clippy::unwrap_used)]

mod admission;
mod jobsets;
mod weight;
