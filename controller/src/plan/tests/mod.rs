//! Whole passes: what the rules do together. `golden` holds them to their cases, the others say what a table says better.

mod budget;
mod failure;
mod finished;
mod fixture;
mod golden;
mod restart;
mod skip;
mod start;
mod success;
mod tally;
mod world;
