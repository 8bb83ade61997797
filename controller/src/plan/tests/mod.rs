//! Whole passes: what the rules do together.

mod failure;
mod finished;
mod fixture;
mod restart;
mod skip;
mod start;
mod success;
mod tally;
mod world;
